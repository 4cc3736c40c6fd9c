// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"narthex/internal/daemon"
	"narthex/test/nettest"
)

// ruledPolicy has so many rules, half of them of connections, with a bucket each.
func ruledPolicy(rules int) string {
	var b strings.Builder
	b.WriteString(`version: 1
services: [{name: shop, listen: "*:80", concurrency: auto}]
classes: [{name: gold, priority: 1}, {name: silver, priority: 2}, {name: bronze, priority: 3}]
connections:
`)
	for i := range rules / 2 {
		fmt.Fprintf(&b, "  - {name: net-%d, from: 10.%d.%d.0/24, rate: 10/s, burst: 5, per: source}\n", i, i/256, i%256)
	}
	b.WriteString("requests:\n")
	for i := range rules - rules/2 {
		fmt.Fprintf(&b, "  - {name: path-%d, path: /path/%d, rate: 10/s, burst: 5, per: source}\n", i, i)
	}
	return b.String()
}

// BenchmarkScrape is of a real daemon in a namespace of its own, over loopback, as Prometheus
// does it: all of it, from the request to the last byte of the answer.
func BenchmarkScrape(b *testing.B) {
	for _, rules := range []int{10, 1000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			ns := nettest.Namespace(b, "scrape")
			s := newSubject(b, ruledPolicy(rules), daemon.Config{
				Instance: fmt.Sprintf("scrape-%d", os.Getpid()), NetNS: ns.Name(), Kernel: daemon.BPF(), OpenNetwork: daemon.OpenNamespace,
			})
			s.scrape(b, io.Discard)
			for b.Loop() {
				b.SetBytes(s.scrape(b, io.Discard))
			}
		})
	}
}
