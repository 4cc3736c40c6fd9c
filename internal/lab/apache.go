// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// ApacheMPM is the part of Apache that distributes connections to processes and threads.
type ApacheMPM string

// The MPMs that StartApache knows.
const (
	Prefork ApacheMPM = "prefork" // a process per connection
	Event   ApacheMPM = "event"   // a thread per request; idle connections wait for none
)

// ApacheConfig says how Apache runs.
type ApacheConfig struct {
	Listen      []netip.AddrPort
	MPM         ApacheMPM     // Event if empty
	Workers     int           // requests served at once (MaxRequestWorkers); 32 if 0
	Backlog     int           // of each listener; Apache's 511 if 0
	IdleTimeout time.Duration // after which an idle connection is closed; Apache's 5 s if 0
	Backend     string        // address and port of a server that it asks for what begins with /wait; none if empty
	CGI         string        // text of a script that answers what begins with CGIPath; of Prefork only; none if empty
	CPUs        []int         // cores of all its processes; any if empty
	Directives  string        // further ones, of the main server
	Kill        bool          // stop it by SIGKILL: with some modules it does not end, see mod_qos in package peers
}

// CGIPath is the path of Apache's CGI script.
const CGIPath = "/cgi"

// apacheThreads is how many threads each process of the event MPM has, at most.
const apacheThreads = 64

// Apache refuses to serve as root; 65534 is nobody everywhere.
var apacheConf = template.Must(template.New("apache.conf").Parse(`
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
ListenBacklog {{.Backlog}}
KeepAlive On
KeepAliveTimeout {{.IdleTimeout}}ms
MaxKeepAliveRequests 0
{{if eq .MPM "prefork"}}
ServerLimit {{.Workers}}
StartServers {{.Workers}}
MinSpareServers {{.Workers}}
MaxSpareServers {{.Workers}}
{{else}}
ServerLimit {{.Processes}}
StartServers {{.Processes}}
ThreadsPerChild {{.Threads}}
ThreadLimit {{.Threads}}
MinSpareThreads {{.Workers}}
MaxSpareThreads {{.Workers}}
{{end}}
MaxRequestWorkers {{.Workers}}
DocumentRoot {{.Dir}}/html
DirectoryIndex 8k.html
<Directory {{.Dir}}/html>
	Require all granted
</Directory>
{{- if .Backend}}
ProxyPass /wait http://{{.Backend}}/wait
{{- end}}
{{- if .CGI}}
ScriptAlias {{.CGI}} {{.Dir}}/script
SetEnv ap_trust_cgilike_cl 1
{{- end}}
{{.Directives}}
`))

// StartApache starts the distribution's Apache with a configuration of its own and waits
// until it accepts connections, with all its processes. It ends with the namespace, or with Close.
func (n *Namespace) StartApache(cfg ApacheConfig) (*Server, error) {
	mpm := defaultTo(cfg.MPM, Event)
	if mpm != Prefork && mpm != Event {
		return nil, fmt.Errorf("start apache: MPM %q is not known here", mpm)
	}
	workers := defaultTo(cfg.Workers, 32)
	threads := min(workers, apacheThreads)
	if mpm == Event && cfg.CGI != "" {
		return nil, errors.New("start apache: mod_cgi needs the prefork MPM")
	}
	if mpm == Event && workers%threads != 0 {
		return nil, errors.New("start apache: its event MPM has threads in multiples of " + fmt.Sprint(apacheThreads))
	}
	processes := workers
	if mpm == Event {
		processes = workers / threads
	}
	return foreign{
		name: "apache", program: "/usr/sbin/apache2", pkg: "apache2-bin", listen: cfg.Listen, cpus: cfg.CPUs, kill: cfg.Kill,
		workers: processes,
		args: func(dir string) []string {
			return []string{"-DFOREGROUND", "-d", dir, "-f", filepath.Join(dir, "apache.conf")}
		},
		prepare: func(dir string) error {
			if err := writeFile(dir, File); err != nil {
				return err
			}
			modules := []string{"mpm_" + string(mpm), "authz_core", "dir"}
			if cfg.Backend != "" {
				modules = append(modules, "proxy", "proxy_http")
			}
			cgi := ""
			if cfg.CGI != "" {
				modules, cgi = append(modules, "alias", "cgi", "env"), CGIPath
				if err := os.WriteFile(filepath.Join(dir, "script"), []byte(cfg.CGI), 0o755); err != nil {
					return err
				}
			}
			return writeConf(filepath.Join(dir, "apache.conf"), apacheConf, map[string]any{
				"Dir":         dir,
				"Modules":     modules,
				"Backend":     cfg.Backend,
				"CGI":         cgi,
				"Directives":  cfg.Directives,
				"Listen":      cfg.Listen,
				"MPM":         string(mpm),
				"Workers":     workers,
				"Processes":   processes,
				"Threads":     threads,
				"Backlog":     defaultTo(cfg.Backlog, 511),
				"IdleTimeout": milliseconds(defaultTo(cfg.IdleTimeout, 5*time.Second)),
			})
		},
	}.start(n)
}
