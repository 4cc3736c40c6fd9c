// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// manyRules is how many connection rules a large policy has.
const manyRules = 10_000

// unlimited is a bucket that no client here empties.
const unlimited = "rate: 1000000/s, burst: 1000000"

// writePolicy writes a policy for the lab's web service into a folder that goes with the
// lab.
func writePolicy(rig *lab.Lab, service, rules string) (path string, err error) {
	text := fmt.Sprintf("version: 1\nservices:\n  - {name: web, listen: [\"%s\", \"[%s]:80\"]%s}\nconnections:\n%s",
		bench.Web(rig), rig.ServerV6, service, rules)
	return bench.WritePolicy(rig.Server, text)
}

// largePolicy writes a policy of manyRules rules. The last is called everyone, gives each
// source a bucket and decides for all who are in none of the networks that the others
// name. Different seeds make different policies.
func largePolicy(rig *lab.Lab, seed uint64) (path string, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	var rules strings.Builder
	taken := map[netip.Prefix]bool{}
	for len(taken) < manyRules-1 {
		p := randomPrefix(random)
		if taken[p] {
			continue
		}
		taken[p] = true
		fmt.Fprintf(&rules, "  - {name: r%d, from: \"%s\", %s}\n", len(taken), p, randomAction(random))
	}
	fmt.Fprintf(&rules, "  - {name: everyone, %s, per: source}\n", unlimited)
	return writePolicy(rig, "", rules.String())
}

// randomPrefix returns a prefix with a length as lists of networks have them, IPv4 or
// IPv6, outside 10.0.0.0/8 and fd00::/8, where the lab and its sources are.
func randomPrefix(r *rand.Rand) netip.Prefix {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if r.IntN(2) == 0 {
		b[0] = 11 + b[0]%200
		bits := []int{12, 16, 16, 20, 22, 24, 24, 24, 28, 32, 32}
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(b[:4])), bits[r.IntN(len(bits))]).Masked()
	}
	b[0], b[1] = 0x20, 1+b[1]%16
	bits := []int{29, 32, 36, 40, 44, 48, 48, 56, 64, 64, 128}
	return netip.PrefixFrom(netip.AddrFrom16(b), bits[r.IntN(len(bits))]).Masked()
}

// randomAction returns what a rule does.
func randomAction(r *rand.Rand) string {
	limit := fmt.Sprintf("rate: %d/s, burst: %d", 1+r.IntN(1000), 1+r.IntN(100))
	return []string{limit, limit + ", per: source", limit + ", per: {v4: 24, v6: 48}", "action: drop"}[r.IntN(4)]
}
