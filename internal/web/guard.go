// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// contentPolicy lets the page load and ask nothing but what is served beside it, and run no
// script that is written into it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard keeps other sites out: a page from elsewhere may neither read what is served here, by
// whatever name it has got for this address (DNS rebinding), nor frame it, nor use up the
// places of those who watch.
func guard(address string, allowed []string, next http.Handler) http.Handler {
	own, _, err := net.SplitHostPort(address)
	if err != nil {
		own = address
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		host := hostOf(r.Host)
		switch {
		case !isOurs(host, own, r) && !slices.Contains(allowed, host):
			http.Error(w, fmt.Sprintf("%q is no name of this dashboard: use its address, localhost on this machine, or `narthex run --metrics %s`; behind a reverse proxy --allowed-host %s",
				host, net.JoinHostPort(host, "PORT"), host), http.StatusMisdirectedRequest)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
			http.Error(w, "this is for the dashboard's own page", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// hostOf returns a Host header without its port and brackets, in lower case.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isOurs reports whether a host is a name of this machine's loopback, the one that the
// dashboard was told to listen on, or the address that the connection has come to, which
// cannot be another's.
func isOurs(host, own string, r *http.Request) bool {
	if host == "localhost" || host == strings.ToLower(own) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap().WithZone("") == addr.Unmap().WithZone("")
}
