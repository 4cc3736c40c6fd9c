// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"text/template"

	"narthex/internal/lab"
)

// sizes are those of the files that all servers have, at /f/SIZE.
var sizes = []int{0, 1, 100, 1000, 8192, 30_000, 100_000, 1 << 20, 4 << 20}

func fileName(size int) string { return "f/" + strconv.Itoa(size) }

// writeFiles writes them into a folder that servers can read which do not run as root.
func writeFiles(dir string, seed uint64) error {
	if err := os.MkdirAll(filepath.Join(dir, "html", "f"), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, size := range sizes {
		if err := os.WriteFile(filepath.Join(dir, "html", fileName(size)), take(seed, fileName(size), size), 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(dir, "put", "put"), 0o755)
}

// The servers answer also to uploads, which those of package lab do not: nginx keeps
// what is PUT below /put, Apache answers a POST to /echo with its body.
var (
	nginxConf = template.Must(template.New("nginx.conf").Parse(`
daemon off;
user root;
worker_processes 1;
pid {{.Dir}}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 131072;
events { worker_connections 65536; } # else it closes those of ordinary clients for idle ones of a flood
http {
	access_log off;
	sendfile on;
	tcp_nopush on;
	keepalive_timeout 600s;
	keepalive_requests 1000000000;
	client_body_timeout 20s;
	client_header_timeout 20s;
	client_max_body_size 100m;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	server {
{{- range .Listen}}
		listen {{.}}{{if .Addr.Is6}} ipv6only=on{{end}};
{{- end}}
		root {{.Dir}}/html;
		location /put/ {
			root {{.Dir}}/put;
			dav_methods PUT DELETE;
		}
	}
}
`))
	// One process per connection, and more than there are connections at a time, or those who
	// wait for one would have to wait until others have gone; see also lab.build.
	apacheConf = template.Must(template.New("apache.conf").Parse(`
ServerRoot {{.Dir}}
DefaultRuntimeDir {{.Dir}}
PidFile {{.Dir}}/apache.pid
Mutex file:{{.Dir}}
ErrorLog /dev/stderr
LogLevel crit
ServerName narthex.example
User #65534
Group #65534
{{range .Modules}}
LoadModule {{.}}_module /usr/lib/apache2/modules/mod_{{.}}.so
{{- end}}
{{range .Listen}}
Listen {{.}}
{{- end}}
Timeout 20
KeepAlive On
KeepAliveTimeout 600
MaxKeepAliveRequests 0
ServerLimit {{.Workers}}
StartServers {{.Workers}}
MinSpareServers {{.Workers}}
MaxSpareServers {{.Workers}}
MaxRequestWorkers {{.Workers}}
DocumentRoot {{.Dir}}/html
<Directory {{.Dir}}/html>
	Require all granted
</Directory>
<Location /echo>
	SetHandler reflector
</Location>
`))
)

const apacheWorkers = 192

// startNginx and startApache start servers in front of the files in the folder.
func (l *rig) startNginx(s *service) (*lab.Server, error) {
	return l.distribution(s, lab.NginxBinary, nginxConf, func(dir, conf string) []string {
		return []string{"-p", dir, "-c", conf, "-e", "stderr"}
	})
}

func (l *rig) startApache(s *service) (*lab.Server, error) {
	return l.distribution(s, "/usr/sbin/apache2", apacheConf, func(dir, conf string) []string {
		return []string{"-DFOREGROUND", "-d", dir, "-f", conf}
	})
}

// distribution starts one of the distribution's servers.
func (l *rig) distribution(s *service, program string, conf *template.Template, args func(dir, conf string) []string) (*lab.Server, error) {
	path := filepath.Join(l.dir, s.name+".conf")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := conf.Execute(file, map[string]any{
		"Dir": l.dir, "Listen": l.listens(s), "Workers": apacheWorkers,
		"Modules": []string{"mpm_prefork", "authz_core", "reflector"},
	}); err != nil {
		return nil, err
	}
	cmd := l.Server.Command(program, args(l.dir, path)...)
	cmd.SysProcAttr.Setpgid = true // Apache ends by a signal to its whole process group
	server, err := l.Server.Serve(cmd, l.listens(s)...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	return server, nil
}

// listens are the addresses of a service.
func (l *rig) listens(s *service) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(l.ServerV4, s.port), netip.AddrPortFrom(l.ServerV6, s.port)}
}
