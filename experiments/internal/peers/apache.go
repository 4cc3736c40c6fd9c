// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"narthex/internal/lab"
)

// Apache is Apache with a process for each connection (prefork), as the papers' server was.
type Apache struct {
	Listen  []netip.AddrPort
	Workers int // processes
	Backlog int
	CPUs    []int

	// Work is the time of the core that a file costs besides, before it is served: a hook
	// of mod_lua counts rounds, as many as take that long on an undisturbed core. It comes
	// last of all that decide on a request, so that one which mod_qos denies does not cost
	// it.
	Work time.Duration
	CGI  string // text of a script that answers at Dynamic, by mod_cgi; none if empty
	QoS  *QoS   // nil: without mod_qos
}

// Follows says which documentation the configuration follows.
func (Apache) Follows() string {
	return `https://httpd.apache.org/docs/2.4/mod/prefork.html; https://httpd.apache.org/docs/2.4/mod/mod_lua.html sections "LuaHookFixups", "LuaScope"`
}

// Start starts Apache.
func (a Apache) Start(ns *lab.Namespace) (*lab.Server, error) {
	html, err := a.files(ns)
	if err != nil {
		return nil, fmt.Errorf("configure apache: %w", err)
	}
	d := []string{
		module("alias"),
		`AliasMatch "^/(?:[^/]+/)*([18]k\.html)$" "` + html + `/$1"`,
		"<Directory " + html + ">", "Require all granted",
	}
	if a.Work > 0 {
		rounds, err := luaRounds.in(a.Work, a.luaRound)
		if err != nil {
			return nil, fmt.Errorf("measure a round of mod_lua: %w", err)
		}
		script, err := luaScript(ns, rounds)
		if err != nil {
			return nil, fmt.Errorf("configure apache: %w", err)
		}
		d = append(d, "LuaHookFixups "+script+" work")
		d = append([]string{module("lua"), luaOptions}, d...)
	}
	d = append(d, "</Directory>")
	if a.QoS != nil {
		d = append(d, a.QoS.directives()...)
	}
	return a.start(ns, d)
}

func (a Apache) start(ns *lab.Namespace, directives []string) (*lab.Server, error) {
	return ns.StartApache(lab.ApacheConfig{
		Listen: a.Listen, MPM: lab.Prefork, Workers: a.Workers, Backlog: a.Backlog, CPUs: a.CPUs, CGI: a.CGI,
		Directives: lines(directives), Kill: a.QoS != nil,
	})
}

// files makes a folder with the files, for AliasMatch to find them in any folder.
func (a Apache) files(ns *lab.Namespace) (dir string, err error) {
	if dir, err = publicDir(ns, "html"); err != nil {
		return "", err
	}
	content := lab.FileContent()
	for name, length := range map[string]int{File8K: len(content), File1K: 1024} {
		if err := os.WriteFile(filepath.Join(dir, name), content[:length], 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// publicDir makes a folder that servers can read which do not run as root.
func publicDir(ns *lab.Namespace, purpose string) (string, error) {
	dir, err := ns.TempDir(purpose)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// The interpreter of each process lives as long as the process, and reads a script once.
const luaOptions = "LuaScope thread\nLuaCodeCache forever"

// A round of work is the same in mod_lua and in nginx's Perl, but not its time.
var luaText = `local rounds = %d
local function burn(n)
	local x = 1
	for i = 1, n do x = (x * 5 + 1) %% 65536 end
	return x
end
function work(r)
	burn(rounds)
	return apache2.DECLINED
end
function measure(r)
	local n, least = %d, math.huge
	for pass = 1, %d do
		local begun = os.clock()
		burn(n)
		least = math.min(least, os.clock() - begun)
	end
	r.content_type = "text/plain"
	r:puts(string.format("%%.6f", least / n * 1e9))
	return apache2.OK
end
`

// luaScript writes the script.
func luaScript(ns *lab.Namespace, rounds int) (path string, err error) {
	dir, err := publicDir(ns, "lua")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "work.lua")
	return path, os.WriteFile(path, fmt.Appendf(nil, luaText, rounds, calibrationRounds, calibrationPasses), 0o644)
}

// luaRound measures in a server of its own how long a round takes.
func (a Apache) luaRound() (nanoseconds float64, err error) {
	return measureIn(func(ns *lab.Namespace, listen netip.AddrPort) error {
		script, err := luaScript(ns, 0)
		if err != nil {
			return err
		}
		one := Apache{Listen: []netip.AddrPort{listen}, Workers: 1, CPUs: a.CPUs}
		_, err = one.start(ns, []string{module("lua"), luaOptions, "LuaMapHandler " + measurePath + " " + script + " measure"})
		return err
	})
}

// DynamicBytes is how long the answer of DynamicScript is.
const DynamicBytes = 16 << 10

// DynamicScript is a script for Apache's CGI: most of its cost, a few milliseconds of the
// core, is that of starting a process and its interpreter, as with CGI programs then.
var DynamicScript = fmt.Sprintf(`#!/usr/bin/perl
my $body = "narthex\n" x %d;
print "Content-Type: text/plain\r\nContent-Length: ", length $body, "\r\n\r\n", $body;
`, DynamicBytes/8)
