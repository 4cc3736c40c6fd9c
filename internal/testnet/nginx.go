// SPDX-License-Identifier: Apache-2.0

package testnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"
)

// NginxBinary is the web server of the distribution.
const NginxBinary = "/usr/sbin/nginx"

// NginxFile is the path of the file that Nginx serves, FileBytes long; so is "/".
const NginxFile = "/8k.html"

// FileBytes is the length of the file that the servers serve.
const FileBytes = 8192

// startTimeout is how long a server may take until it accepts connections, and
// stopTimeout how long it may take to end.
const (
	startTimeout = 10 * time.Second
	stopTimeout  = 5 * time.Second
)

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
error_log {{.Dir}}/error.log;
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

// Nginx is a running nginx.
type Nginx struct {
	cmd  *Cmd
	dir  string
	stop func() error
	done chan struct{} // closed once the process has ended
}

// StartNginx starts the distribution's nginx with a configuration of its own and waits
// until it accepts connections. It ends with the namespace, or with Close.
func (n *Namespace) StartNginx(cfg NginxConfig) (*Nginx, error) {
	if len(cfg.Listen) == 0 {
		return nil, errors.New("start nginx: no address to listen on")
	}
	dir, err := n.TempDir("nginx")
	if err != nil {
		return nil, fmt.Errorf("start nginx: %w", err)
	}
	conf, err := writeNginxFiles(dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	s := &Nginx{dir: dir, done: make(chan struct{})}
	s.cmd = n.Command(NginxBinary, "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log"))
	s.cmd.CPUs = cfg.CPUs
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start nginx (on Debian and Ubuntu the package nginx-light has it): %w", err)
	}
	s.stop = sync.OnceValue(s.terminate)
	n.OnClose(s.stop)
	go func() {
		_ = s.cmd.Wait() // its log says more than its exit status
		close(s.done)
	}()
	for _, addr := range cfg.Listen {
		if err := n.AwaitListener(addr, s.done); err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
			return nil, errors.Join(fmt.Errorf("start nginx: %w: %s", err, strings.TrimSpace(string(log))), s.Close())
		}
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

// PIDs returns the processes of the server: the master, then its workers.
func (s *Nginx) PIDs() ([]int, error) {
	workers, err := childrenOf(s.cmd.Process.Pid)
	return append([]int{s.cmd.Process.Pid}, workers...), err
}

// Reload has the server start new workers and open its listeners again.
func (s *Nginx) Reload() error { return s.cmd.Process.Signal(syscall.SIGHUP) }

// Close stops the server at once, with the connections it has. Closing twice is no error.
func (s *Nginx) Close() error { return s.stop() }

func (s *Nginx) terminate() error { return Terminate(s.cmd.Process, s.done) }

// Terminate asks a process to end, and kills it if it has not within five seconds. The
// channel must be closed once the process has been waited for.
func Terminate(p *os.Process, done <-chan struct{}) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", p.Pid, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	<-done
	return fmt.Errorf("stop process %d: it did not end within %v and was killed", p.Pid, stopTimeout)
}

// AwaitListener waits until a connection from within the namespace to addr succeeds.
// It gives up when ended is closed: the server is gone.
func (n *Namespace) AwaitListener(addr netip.AddrPort, ended <-chan struct{}) error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := n.Do(func() error {
			conn, err := net.DialTimeout("tcp", addr.String(), time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for a listener on %s: %w", addr, err)
		}
		select {
		case <-ended:
			return fmt.Errorf("wait for a listener on %s: the server has ended", addr)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func defaultTo(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}
