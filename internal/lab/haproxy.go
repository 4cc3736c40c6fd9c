// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"path/filepath"
	"text/template"
	"time"
)

// HAProxyConfig says how HAProxy runs: as a server, or as a proxy in front of one.
type HAProxyConfig struct {
	Listen         []netip.AddrPort
	Threads        int           // 1 if 0
	Backlog        int           // of each listener; the system's maximum if 0
	IdleTimeout    time.Duration // after which an idle connection is closed; a minute if 0
	RequestTimeout time.Duration // from a request's first byte to the end of its head; a minute if 0
	CPUs           []int         // cores that it runs on; any if empty

	Origin     netip.AddrPort    // the server behind it; none: it answers by itself
	MaxConn    int               // requests at the origin at once, beyond which they queue; unlimited if 0
	Priorities []HAProxyPriority // first match wins; what matches none has priority 0

	Frontend, Backend string // further lines of the sections
	Sections          string // further sections
}

// HAProxyPriority gives requests from some sources a place in the queue for the origin.
type HAProxyPriority struct {
	From     netip.Prefix
	Priority int // -2047 to 2047; the lowest number goes first
}

var haproxyConf = template.Must(template.New("haproxy.cfg").Parse(`
global
	nbthread {{.Threads}}
	maxconn 8192
	log stderr format raw daemon crit
defaults
	mode http
	option dontlognull
	timeout connect 10s
	timeout queue 1m
	timeout client 1m
	timeout server 1m
	timeout http-keep-alive {{.IdleTimeout}}ms
	timeout http-request {{.RequestTimeout}}ms
frontend web
{{- range .Listen}}
	bind {{.}}{{if $.Backlog}} backlog {{$.Backlog}}{{end}}{{if .Addr.Is6}} v6only{{end}}
{{- end}}
{{- if .Origin.IsValid}}
{{- range .Priorities}}
	http-request set-priority-class int({{.Priority}}) if { src {{.From}} }
{{- end}}
	{{.Frontend}}
	default_backend origin
backend origin
	http-reuse always
	{{.Backend}}
	server origin {{.Origin}}{{if .MaxConn}} maxconn {{.MaxConn}}{{end}}
{{- else}}
	{{.Frontend}}
	http-request return status 200 content-type text/html file {{.File}} if { path / {{.Path}} }
	http-request return status 404
{{- end}}
{{.Sections}}
`))

// StartHAProxy starts the distribution's HAProxy with a configuration of its own and
// waits until it accepts connections. It ends with the namespace, or with Close.
func (n *Namespace) StartHAProxy(cfg HAProxyConfig) (*Server, error) {
	return foreign{
		name: "haproxy", program: "/usr/sbin/haproxy", pkg: "haproxy", listen: cfg.Listen, cpus: cfg.CPUs,
		args: func(dir string) []string {
			return []string{"-db", "-f", filepath.Join(dir, "haproxy.cfg")}
		},
		prepare: func(dir string) error {
			if err := writeFile(dir, File); err != nil {
				return err
			}
			// Of set-priority-class rules the last one that matches decides.
			var priorities []HAProxyPriority
			for i := range cfg.Priorities {
				priorities = append(priorities, cfg.Priorities[len(cfg.Priorities)-1-i])
			}
			return writeConf(filepath.Join(dir, "haproxy.cfg"), haproxyConf, map[string]any{
				"Threads":        max(1, cfg.Threads),
				"Listen":         cfg.Listen,
				"Backlog":        cfg.Backlog,
				"IdleTimeout":    milliseconds(defaultTo(cfg.IdleTimeout, time.Minute)),
				"RequestTimeout": milliseconds(defaultTo(cfg.RequestTimeout, time.Minute)),
				"Origin":         cfg.Origin,
				"MaxConn":        cfg.MaxConn,
				"Priorities":     priorities,
				"File":           filepath.Join(dir, "html", File),
				"Path":           File,
				"Frontend":       cfg.Frontend,
				"Backend":        cfg.Backend,
				"Sections":       cfg.Sections,
			})
		},
	}.start(n)
}
