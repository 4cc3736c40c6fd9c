// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"path/filepath"
	"text/template"
	"time"
)

// NginxBinary is the web server of the distribution.
const NginxBinary = "/usr/sbin/nginx"

// NginxFile is the path of the file that Nginx serves.
const NginxFile = File

// NginxConfig says how nginx runs.
type NginxConfig struct {
	Listen      []netip.AddrPort
	Secure      []netip.AddrPort // more addresses, over TLS with HTTP/1.1
	Workers     int              // worker processes; 1 if 0
	Backlog     int              // of each listener; nginx's 511 if 0
	IdleTimeout time.Duration    // after which an idle connection is closed; nginx's 75 s if 0
	Backend     string           // address and port of a server that it asks for what begins with /wait; none if empty
	CPUs        []int            // cores of all its processes; any if empty
	TLS         bool             // over TLS, with HTTP/2 for those who want it

	Main, HTTP, Server string // further directives, of each context
}

var nginxConf = template.Must(template.New("nginx.conf").Parse(`
daemon off;
user root;
worker_processes {{.Workers}};
pid {{.Dir}}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 16384;
{{.Main}}
events { worker_connections 8192; }
http {
	access_log off;
	default_type text/html;
	sendfile on;
	tcp_nopush on;
	keepalive_timeout {{.IdleTimeout}}ms;
	keepalive_requests 1000000000;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	{{.HTTP}}
	server {
{{- range .Listen}}
		listen {{.}} backlog={{$.Backlog}}{{if .Addr.Is6}} ipv6only=on{{end}}{{if $.TLS}} ssl http2{{end}};
{{- end}}
{{- range .Secure}}
		listen {{.}} backlog={{$.Backlog}}{{if .Addr.Is6}} ipv6only=on{{end}} ssl;
{{- end}}
{{- if or .TLS .Secure}}
		ssl_certificate {{.Dir}}/certificate.pem;
		ssl_certificate_key {{.Dir}}/key.pem;
{{- end}}
		root {{.Dir}}/html;
		index 8k.html;
{{- if .Backend}}
		location /wait {
			proxy_pass http://{{.Backend}};
		}
{{- end}}
		{{.Server}}
	}
}
`))

// StartNginx starts the distribution's nginx with a configuration of its own and waits
// until it accepts connections, with all its processes. It ends with the namespace, or with Close.
func (n *Namespace) StartNginx(cfg NginxConfig) (*Server, error) {
	workers := max(1, cfg.Workers)
	return foreign{
		name: "nginx", program: NginxBinary, pkg: "nginx", listen: cfg.Listen, cpus: cfg.CPUs, workers: workers,
		args: func(dir string) []string {
			return []string{"-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr"}
		},
		prepare: func(dir string) error {
			if err := writeFile(dir, File); err != nil {
				return err
			}
			if cfg.TLS || len(cfg.Secure) > 0 {
				if err := writeCertificate(dir); err != nil {
					return err
				}
			}
			return writeConf(filepath.Join(dir, "nginx.conf"), nginxConf, map[string]any{
				"Dir":         dir,
				"Listen":      cfg.Listen,
				"Secure":      cfg.Secure,
				"Workers":     workers,
				"Backlog":     defaultTo(cfg.Backlog, 511),
				"TLS":         cfg.TLS,
				"Backend":     cfg.Backend,
				"IdleTimeout": milliseconds(defaultTo(cfg.IdleTimeout, 75*time.Second)),
				"Main":        cfg.Main,
				"HTTP":        cfg.HTTP,
				"Server":      cfg.Server,
			})
		},
	}.start(n)
}
