// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkTake is one arrival decided by two policies of many request rules.
func BenchmarkTake(b *testing.B) {
	for _, rules := range []int{10, 1000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("requests:\n")
			for i := range rules {
				fmt.Fprintf(&text, "  - {name: r%d, path: \"/dir%d/*\", rate: 5/s, per: source}\n", i, i)
			}
			p, tables := build(b, web, text.String())
			trial := New(p, p, tables, tables, noon)
			a := (&step{from: "10.0.0.1", head: get("/dir7/page", "User-Agent: Mozilla/5.0", "Cookie: session=1; theme=dark", "Accept: */*")}).arrival()
			for b.Loop() {
				trial.Take(a)
			}
		})
	}
}
