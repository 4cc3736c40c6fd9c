// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"regexp"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// redirects lists what sends requests on to another location, with a limit of its own: rules
// go by the path that the client asks for.
func (c *config) redirects(server *directive, outer []limit) {
	limits := own(server.block, outer)
	if len(limits) > 0 || limited(server.block) {
		c.redirectsIn(server, server.block, limits)
	}
}

func (c *config) redirectsIn(server *directive, block []*directive, limits []limit) {
	for _, d := range block {
		switch {
		case d.name == "location" && d.opens:
			c.redirectsIn(server, d.block, own(d.block, limits))
		case d.name == "if" && d.opens:
			c.redirectsIn(server, d.block, limits)
		case d.name == "rewrite" && rewrites(d), c.sends(d, server, limits):
			c.draft.Leave(d.Origin, d.text(), "nginx goes on with another path here, and the limit of its location holds; rules go by the path that the client asks for",
				"write a rule for the paths from which nginx comes here")
		}
	}
}

// own returns the limits of a block, or those around it.
func own(block []*directive, outer []limit) []limit {
	var out []limit
	for _, d := range block {
		if d.name == "limit_conn" && len(d.args) > 0 {
			out = append(out, limit{zone: d.args[0]})
		}
		if d.name == "limit_req" {
			for _, a := range d.args {
				if zone, ok := strings.CutPrefix(a, "zone="); ok {
					out = append(out, limit{zone: zone})
				}
			}
		}
	}
	if out == nil {
		return outer
	}
	return out
}

// limited reports whether there is a limit in a block.
func limited(block []*directive) bool {
	return slices.ContainsFunc(block, func(d *directive) bool { return d.name == "limit_req" || d.name == "limit_conn" || limited(d.block) })
}

// rewrites reports whether a rewrite is one within nginx, not an answer to the client.
func rewrites(d *directive) bool {
	if len(d.args) < 2 {
		return false
	}
	out := func(prefix string) bool { return strings.HasPrefix(d.args[1], prefix) }
	return !slices.Contains(d.args[2:], "redirect") && !slices.Contains(d.args[2:], "permanent") && !out("http://") && !out("https://") && !out("$scheme")
}

// sends reports whether a directive sends a request to a limit that does not hold yet: nginx
// asks for limits once for each request.
func (c *config) sends(d *directive, server *directive, limits []limit) bool {
	if len(d.args) == 0 || c.sure(limits) {
		return false
	}
	last := d.args[len(d.args)-1]
	switch d.name {
	case "index":
		return slices.ContainsFunc(d.args, func(file string) bool { return leads(server.block, file, true) })
	case "try_files", "error_page":
		return (strings.HasPrefix(last, "/") || strings.HasPrefix(last, "@") || strings.HasPrefix(last, "$")) && leads(server.block, last, false)
	}
	return false
}

// sure reports whether one of the limits holds for every request.
func (c *config) sure(limits []limit) bool {
	return slices.ContainsFunc(limits, func(l limit) bool {
		z := c.zones[l.zone]
		return z != nil && z.err == nil && !z.key.never && z.key.on == nil && len(z.key.exempt) == 0
	})
}

var variables = regexp.MustCompile(`\$(\{\w+\}|\w+)`)

// leads reports whether a path, or a file in any folder, may be in a location with a limit.
func leads(block []*directive, to string, inFolder bool) bool {
	path, _, _ := strings.Cut(to, "?")
	target := variables.ReplaceAllString(path, "*")
	if inFolder && !strings.HasPrefix(target, "/") {
		target = "*/" + target
	}
	for _, d := range block {
		if d.name != "location" || len(d.args) == 0 {
			continue
		}
		operator, text := modifier(d.args)
		patterns := []string{text + "*"}
		switch {
		case operator == "~" || operator == "~*":
			if globs, err := draft.Globs(text, operator == "~*", false); err == nil {
				patterns = globs
			} else {
				patterns = nil
			}
		case operator == "=" || strings.HasPrefix(text, "@"):
			patterns = []string{text}
		}
		name := text[strings.LastIndexByte(text, '/')+1:]
		if inFolder && len(patterns) == 1 && operator != "~" && operator != "~*" && (name == "" || !strings.HasPrefix(path, name)) {
			patterns = []string{"@"} // the folder is in the location already, or the file is not
		}
		if limited(d.block) && overlap(patterns, []string{target}) || leads(d.block, to, inFolder) {
			return true
		}
	}
	return false
}
