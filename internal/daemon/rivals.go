// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"narthex/internal/policy"
)

// Two instances that hold requests for one server undo each other's order: what one lets go, the
// other holds behind its own. So each writes down what it polices, for others to see.

const claimsSuffix = ".services"

// claims is what an instance polices.
type claims struct {
	Network  uint64  `json:"network"` // cookie of the network namespace
	Services []claim `json:"services"`
}

type claim struct {
	Service    string   `json:"service"`
	Listen     []string `json:"listen"`
	Interfaces []string `json:"interfaces,omitempty"` // none: all but lo
}

func claimsPath(runDir, instance string) string { return filepath.Join(runDir, instance+claimsSuffix) }

// claimsOf returns what a policy enforces. What is in shadow mode is in nobody's way.
func claimsOf(t *policy.Tables, network uint64) claims {
	c := claims{Network: network, Services: []claim{}}
	for i := range t.Services {
		s := &t.Services[i]
		if s.Shadow {
			continue
		}
		one := claim{Service: s.Name, Interfaces: s.Interfaces}
		for _, l := range s.Listen {
			one.Listen = append(one.Listen, l.String())
		}
		c.Services = append(c.Services, one)
	}
	return c
}

// rival says which service another instance polices, too; it is empty if there is none.
func (c *claims) rival(other *claims) string {
	for i := range c.Services {
		for j := range other.Services {
			if a, b := &c.Services[i], &other.Services[j]; c.Network == other.Network && a.meets(b) {
				return fmt.Sprintf("service %q (%s)", b.Service, strings.Join(b.Listen, ", "))
			}
		}
	}
	return ""
}

// meets reports whether a connection may be to both.
func (c *claim) meets(o *claim) bool {
	listens := slices.ContainsFunc(c.Listen, func(l string) bool {
		return slices.ContainsFunc(o.Listen, func(m string) bool { return listensMeet(l, m) })
	})
	return listens && interfacesMeet(c.Interfaces, o.Interfaces)
}

// listensMeet compares ADDRESS:PORT, of which the address may be a *.
func listensMeet(a, b string) bool {
	i, j := strings.LastIndexByte(a, ':'), strings.LastIndexByte(b, ':')
	return a == b || i >= 0 && j >= 0 && a[i:] == b[j:] && (a[:i] == "*" || b[:j] == "*")
}

// interfacesMeet compares lists of which an empty one is all interfaces but lo.
func interfacesMeet(a, b []string) bool {
	on := func(list []string, name string) bool {
		return len(list) == 0 && name != "lo" || slices.Contains(list, name)
	}
	return len(a) == 0 && len(b) == 0 ||
		slices.ContainsFunc(a, func(name string) bool { return on(b, name) }) ||
		slices.ContainsFunc(b, func(name string) bool { return on(a, name) })
}

// claim writes down what a policy will police, and returns an error if another instance polices
// some of it already. Two that start at the same time may both be refused, and never both go on.
// undo puts back what was written before.
func (e *engine) claim(next *policy.Tables) (undo func(), err error) {
	network, err := e.net.Cookie()
	if err != nil {
		return nil, err
	}
	ours, path := claimsOf(next, network), claimsPath(e.runDir, e.instance)
	before, _ := os.ReadFile(path)
	undo = func() {
		if before == nil {
			os.Remove(path)
			return
		}
		_ = os.WriteFile(path, before, 0o600) // it was there a moment ago
	}
	text, err := json.Marshal(ours)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write down what is policed: %w", err)
	}
	err = e.rivals(&ours)
	if err != nil && e.current == nil && e.dp.Adopted() {
		// It is in force, and would be so without a daemon: worse.
		e.log.Warn("another instance polices the same", "error", err)
		e.notes = append(slices.Clone(e.notes), err.Error())
		err = nil
	}
	if err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// rivals returns an error that names another instance which polices the same.
func (e *engine) rivals(ours *claims) error {
	files, _ := filepath.Glob(claimsPath(e.runDir, "*"))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), claimsSuffix)
		text, err := os.ReadFile(file)
		var theirs claims
		if name == e.instance || err != nil || json.Unmarshal(text, &theirs) != nil {
			continue
		}
		service := ours.rival(&theirs)
		if pinned, err := e.pinned(name); service == "" || err == nil && !pinned {
			continue
		}
		return fmt.Errorf("instance %q polices %s already, and two that hold requests for one server undo each other's order: "+
			"`narthex detach --instance %s` ends that one; or give one of them `mode: shadow`, or other services", name, service, name)
	}
	return nil
}
