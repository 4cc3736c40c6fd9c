// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"net/netip"
	"strings"
	"testing"

	"narthex/internal/policy"
)

func TestForwardedFor(t *testing.T) {
	proxies := netip.MustParsePrefix("10.9.0.0/24")
	chain := func(first string, trusted int) string { return first + strings.Repeat(" , 10.9.0.1", trusted) }
	for _, tt := range []struct {
		name    string
		headers []string
		want    string // empty: nobody
		firm    bool
	}{
		{"none", nil, "", false},
		{"empty", []string{" ,, "}, "", false},
		{"the nearest that is not trusted", []string{"10.0.0.1, 10.0.0.2, 10.9.0.1,"}, "10.0.0.2", true},
		{"all trusted", []string{"10.9.0.2, 10.9.0.1"}, "10.9.0.2", false},
		{"no address", []string{"10.0.0.1, unknown, 10.9.0.1"}, "", false},
		{"several headers", []string{"10.0.0.1", "10.9.0.2", " "}, "10.0.0.1", true},
		{"no address in one before", []string{"unknown", "10.9.0.2"}, "", false},
		{"as many as are looked at", []string{chain("10.0.0.1", 31)}, "10.0.0.1", true},
		{"more", []string{chain("10.0.0.1", 32)}, "", false},
		{"empty ones do not count", []string{chain("10.0.0.1", 31) + strings.Repeat(",", 9)}, "10.0.0.1", true},
		{"each header for itself", []string{chain("10.0.0.1", 31), chain("10.9.0.2", 30)}, "10.0.0.1", true},
	} {
		headers := []policy.NameValue{{Name: "x", Value: "10.0.0.9"}}
		for _, h := range tt.headers {
			headers = append(headers, policy.NameValue{Name: "x-forwarded-for", Value: h})
		}
		client, firm := ForwardedFor(headers, proxies.Contains)
		if client.IsValid() != (tt.want != "") || client.IsValid() && client.String() != tt.want || firm != tt.firm {
			t.Errorf("%s: %s, %v, want %q, %v", tt.name, client, firm, tt.want, tt.firm)
		}
	}
}
