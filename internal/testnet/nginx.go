// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
)

// NginxBinary is the web server of the distribution.
const NginxBinary = "/usr/sbin/nginx"

// NginxFile is the path of the file that Nginx serves, FileBytes long; so is "/".
const NginxFile = "/8k.html"

// FileBytes is the length of the file that the servers serve.
const FileBytes = 8192

// NginxConfig says how nginx runs.
type NginxConfig struct {
	Listen  []netip.AddrPort
	Workers int   // worker processes; 1 if 0
	Backlog int   // of each listener; nginx's 511 if 0
	CPUs    []int // cores of all its processes; any if empty
}

var nginxConf = template.Must(template.New("nginx.conf").Parse(`
daemon off;
user root;
worker_processes {{.Workers}};
pid {{.Dir}}/nginx.pid;
error_log stderr crit;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
	access_log off;
	default_type text/html;
	sendfile on;
	tcp_nopush on;
	keepalive_requests 1000000000;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	server {
{{- range .Listen}}
		listen {{.}} backlog={{$.Backlog}}{{if .Addr.Is6}} ipv6only=on{{end}};
{{- end}}
		root {{.Dir}}/html;
		index 8k.html;
	}
}
`))

// StartNginx starts the distribution's nginx with a configuration of its own and waits
// until it accepts connections. It ends with the namespace, or with Close.
func (n *Namespace) StartNginx(cfg NginxConfig) (*Server, error) {
	if len(cfg.Listen) == 0 {
		return nil, errors.New("start nginx: no address to listen on")
	}
	if _, err := os.Stat(NginxBinary); err != nil {
		return nil, fmt.Errorf("start nginx: %w; install it, with apt-get install nginx on Debian and Ubuntu", err)
	}
	dir, err := n.TempDir("nginx")
	if err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	conf, err := writeNginxFiles(dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	cmd := n.Command(NginxBinary, "-p", dir, "-c", conf, "-e", "stderr")
	cmd.CPUs = cfg.CPUs
	s, err := n.Serve(cmd, cfg.Listen...)
	if err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	return s, nil
}

// writeNginxFiles fills the server's folder and returns the path of its configuration.
func writeNginxFiles(dir string, cfg NginxConfig) (conf string, err error) {
	var text bytes.Buffer
	err = nginxConf.Execute(&text, map[string]any{
		"Dir":     dir,
		"Listen":  cfg.Listen,
		"Workers": max(1, cfg.Workers),
		"Backlog": defaultTo(cfg.Backlog, 511),
	})
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "html"), 0o700); err != nil {
		return "", err
	}
	file := bytes.Repeat([]byte("narthex\n"), FileBytes/8)
	if err := os.WriteFile(filepath.Join(dir, "html", NginxFile), file, 0o600); err != nil {
		return "", err
	}
	conf = filepath.Join(dir, "nginx.conf")
	return conf, os.WriteFile(conf, text.Bytes(), 0o600)
}

func defaultTo(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}
