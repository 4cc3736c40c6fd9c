// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strconv"
	"strings"
)

func (o *options) limits(name string, not bool) {
	if o.limit == nil {
		o.limit = &limit{burst: defaultBurst}
	}
	l := o.limit
	switch name {
	case "--limit", "--hashlimit-upto", "--hashlimit-above", "--hashlimit":
		o.hash = name != "--limit"
		l.over = (name == "--hashlimit-above") != not
		if text := o.take(); !l.rate(text) {
			o.leave("the rate %q is not one of packets", text)
		}
	case "--limit-burst", "--hashlimit-burst":
		n, err := strconv.Atoi(o.take())
		if err != nil || n < 1 {
			o.leave("its burst is not one of packets")
			return
		}
		l.burst = n
	case "--connlimit-above", "--connlimit-upto":
		n, err := strconv.Atoi(o.take())
		if err != nil || n < 1 {
			o.leave("how many connections it lets be open at once is not understood")
		}
		l.atOnce, l.over = n, (name == "--connlimit-above") != not
	case "--connlimit-saddr":
	case "--hashlimit-mode":
		o.hashed = o.take()
	case "--hashlimit-srcmask", "--connlimit-mask":
		n, err := strconv.Atoi(o.take())
		if o.mask = n; err != nil || n < 0 || n > 128 {
			o.leave("its mask is not understood")
		}
	case "--hashlimit-rate-match", "--hashlimit-rate-interval", "--hashlimit-dstmask":
		o.leave("%s is not carried over", name)
	default:
		if l.count == 0 && l.atOnce == 0 {
			o.limit = nil
		}
		o.leave("%s is not carried over", name)
		for o.at < len(o.words) && !strings.HasPrefix(o.words[o.at], "-") && o.words[o.at] != "!" {
			o.at++
		}
	}
}

// finish puts the limit together, whose parts may come in any order.
func (o *options) finish() {
	r := o.rule
	if r.verdict == "" || r.verdict == "return" && o.limit == nil {
		if r.verdict == "" {
			r.from, r.unknown, r.instead = nil, "", ""
		}
		return
	}
	if r.limit = o.limit; o.limit == nil {
		return
	}
	if o.limit.atOnce > 0 && o.limit.count > 0 {
		r.leave("it has two limits")
	}
	if o.limit.atOnce > 0 {
		o.perSource()
		return
	}
	if !o.hash {
		return
	}
	switch modes := strings.Split(o.hashed, ","); {
	case o.hashed == "":
	case slices.Contains(modes, "srcip") && !slices.Contains(modes, "srcport") && r.one(modes):
		o.perSource()
	default:
		r.leave("it counts by %s, and Narthex by the client's address", o.hashed)
	}
}

// perSource makes the limit one of each client, by as many bits of the address as the mask has; 0: of all together.
func (o *options) perSource() {
	l, bits := o.limit, o.mask
	l.source = bits != 0
	switch {
	case bits == 0:
	case o.rule.family == 6 && bits < 0:
		l.v6 = 128
	case o.rule.family == 6:
		l.v6 = bits
	case bits < 0:
		l.v4 = 32
	default:
		l.v4 = bits
	}
}

// one reports whether a rule is about one port, so that counting by ports, too, is no more
// than counting. By the server's address it is only if that is named.
func (r *rule) one(modes []string) bool {
	port := len(r.ports) == 1 && r.ports[0].first == r.ports[0].last
	return (port || !slices.Contains(modes, "dstport")) && (len(r.daddr) == 1 || !slices.Contains(modes, "dstip"))
}
