// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"slices"
	"strings"
)

// guess is what a listener is taken for.
type guess struct {
	web   bool
	proxy bool   // a web server that passes requests on to others, as many do
	tls   bool   // it speaks TLS
	why   string // why it is left out, unless it is web
	maybe bool   // it is left out, and could be a web server all the same
}

// servers are programs that serve the web at each port of theirs, and may be proxies.
var servers = []string{
	"nginx", "openresty", "angie", "tengine", "apache2", "httpd", "lighttpd", "caddy", "haproxy", "envoy", "traefik", "varnishd",
	"h2o", "nghttpx", "litespeed", "lshttpd", "thttpd", "hitch", "stunnel", "stunnel4", "frankenphp",
}

// speakTLS are those of them that speak nothing else.
var speakTLS = []string{"hitch", "stunnel", "stunnel4"}

// runtimes are programs that mostly serve the web where they listen; of names with a version,
// such as python3.11, what is before it.
var runtimes = []string{
	"node", "node-MainThread", "MainThread", "deno", "bun", "python", "gunicorn", "uwsgi", "uvicorn", "hypercorn", "daphne", "waitress-serve",
	"ruby", "puma", "unicorn", "thin", "java", "php", "dotnet", "beam.smp", "perl", "starman",
}

// others are programs that are no web servers, or none to protect here.
var others = map[string]string{
	"sshd": ssh, "dropbear": ssh, "systemd-ssh-gen": ssh,
	"mysqld": database, "mariadbd": database, "postgres": database, "redis-server": database, "valkey-server": database, "mongod": database,
	"memcached": database, "clickhouse-serv": database, "cockroach": database, "influxd": database, "etcd": database,
	"php-fpm": "FastCGI, which only the web server before it speaks: limit that",
	"docker-proxy": "a port of a container, whose packets pass to the container's own network: protect it there, " +
		"by narthex run --netns /proc/PID/ns/net with the PID of a process in it",
	"dockerd": machine, "containerd": machine, "kubelet": machine, "kube-proxy": machine, "kube-apiserver": machine,
	"named": names, "unbound": names, "dnsmasq": names, "systemd-resolve": names, "pdns_server": names, "knotd": names,
	"master": mail, "exim4": mail, "dovecot": mail, "sendmail": mail,
	"rpcbind": machine, "cupsd": machine, "xinetd": machine, "smbd": machine, "chronyd": machine,
	"narthex": "Narthex itself", "prometheus": watching, "node_exporter": watching, "prometheus-node": watching,
}

// Why programs and ports are left out.
const (
	ssh      = "SSH: a mistake here must not lock you out"
	database = "a database: its clients are programs of your own, which wait for it anyway"
	machine  = "a service of the machine itself"
	names    = "DNS"
	mail     = "mail"
	watching = "monitoring, which must see the truth, also under attack"
)

// otherPorts are ports at which nobody serves the web, whatever the program is called.
var otherPorts = map[uint16]string{
	21: "FTP", 22: ssh, 23: "Telnet", 25: mail, 53: names, 110: mail, 111: machine, 139: machine, 143: mail, 389: "LDAP", 445: machine,
	465: mail, 587: mail, 631: machine, 636: "LDAP", 853: names, 873: "rsync", 993: mail, 995: mail, 1433: database, 1521: database,
	1883: "MQTT", 2049: machine, 2181: database, 2379: database, 2380: database, 3306: database, 3389: "remote desktop", 5005: debugger,
	5432: database, 5672: broker, 5900: "remote desktop", 6379: database, 6443: machine, 9092: broker, 9100: watching, 9229: debugger,
	9300: database, 10250: machine, 11211: database, 25672: broker, 27017: database,
}

const (
	debugger = "a debugger"
	broker   = "a message broker"
)

// Ports at which unknown programs are taken for web servers.
var (
	plainPorts = []uint16{80, 81, 3000, 5000, 8000, 8008, 8080, 8081, 8082, 8088, 8090, 8180, 8888, 9080}
	tlsPorts   = []uint16{443, 4443, 8443, 9443}
)

// chosenPorts begin where Linux chooses ports for programs that do not mind which.
const chosenPorts = 32768

// known reports whether a program's name says what it is.
func known(program string) bool {
	return others[program] != "" || slices.Contains(servers, program) || isRuntime(program)
}

func isRuntime(program string) bool {
	return slices.Contains(runtimes, strings.TrimRight(program, "0123456789.")) || slices.Contains(runtimes, program)
}

// guessOf says what a listener is taken for.
func guessOf(l Listener) guess {
	port := l.At.Port()
	g := guess{tls: slices.Contains(tlsPorts, port) || slices.Contains(speakTLS, l.Program)}
	server := slices.Contains(servers, l.Program)
	g.proxy = server || l.Program == "" && g.tls
	program := l.Program
	if strings.HasPrefix(program, "php-fpm") {
		program = "php-fpm" // php-fpm8.2
	}
	switch {
	case others[program] != "":
		g.why = others[program]
	case otherPorts[port] != "":
		g.why = otherPorts[port]
	case server:
		g.web = true
	case isRuntime(program) && port < chosenPorts:
		g.web = true
	case isRuntime(program):
		g.why, g.maybe = "a port that is mostly chosen by chance, for debuggers and the like", true
	case slices.Contains(plainPorts, port), slices.Contains(tlsPorts, port):
		g.web = true
	default:
		g.why, g.maybe = "neither its program nor its port is known for the web", true
	}
	return g
}
