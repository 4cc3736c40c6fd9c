// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/policy"
)

// question is what one may ask of an Explainer.
type question struct {
	from netip.Addr
	port uint16         // 0: not named
	to   netip.AddrPort // invalid: every service

	request api.ExplainRequest
	learned int           // class that the source is learned in, or policy.NotLearned
	blocked time.Duration // for which its connections are refused yet
}

// CheckExplain says what is wrong in a question, before anybody is asked.
func CheckExplain(req api.ExplainRequest) error {
	_, err := parseQuestion(req)
	return err
}

func parseQuestion(req api.ExplainRequest) (question, error) {
	from, port, err := parseFrom(req.From)
	if err != nil {
		return question{}, err
	}
	q := question{from: from, port: port, request: req, learned: policy.NotLearned}
	if req.To != "" {
		if q.to, err = parseTo(req.To); err != nil {
			return question{}, err
		}
		if q.to.Addr().Is4() != from.Is4() {
			return question{}, usagef("--from %s and --to %s are of different families: name two IPv4 or two IPv6 addresses", req.From, req.To)
		}
	}
	return q, checkRequest(req)
}

// parseFrom reads IP or IP:PORT; the port is 0 if there is none.
func parseFrom(s string) (netip.Addr, uint16, error) {
	at, err := netip.ParseAddrPort(s)
	if err == nil && at.Port() == 0 {
		return netip.Addr{}, 0, usagef("%q: no connection comes from port 0: leave the port out or name another", s)
	}
	addr := at.Addr()
	if err != nil {
		addr, err = netip.ParseAddr(s)
	}
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, 0, usagef("%q is no address: write it like 192.0.2.1, 192.0.2.1:50000 or [2001:db8::1]:50000", s)
	}
	addr = addr.Unmap()
	if addr.IsUnspecified() || addr.IsMulticast() || addr == broadcast {
		return netip.Addr{}, 0, notASource(addr)
	}
	return addr, at.Port(), nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func notASource(addr netip.Addr) error {
	return usagef("%s is the address of no single host: no connection comes from it", addr)
}

func parseTo(s string) (netip.AddrPort, error) {
	to, err := netip.ParseAddrPort(s)
	if err != nil || to.Addr().Zone() != "" {
		return netip.AddrPort{}, usagef("%q is no address and port: write it like 192.0.2.1:80 or [2001:db8::1]:80", s)
	}
	if to.Port() == 0 {
		return netip.AddrPort{}, usagef("%q: no service listens on port 0: name another", s)
	}
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), nil
}

// token is the form of methods and of names of headers (RFC 9110, section 5.6.2).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// checkRequest checks the form of what a request says.
func checkRequest(req api.ExplainRequest) error {
	if _, _, ok := splitURL(req.URL); req.URL != "" && !ok {
		return usagef("%q is no URL: write it like http://example.org/path or /path", req.URL)
	}
	if req.Method != "" && !token.MatchString(req.Method) {
		return usagef("%q is no method: write it like GET", req.Method)
	}
	if req.JA4 != "" && !policy.IsJA4(req.JA4) {
		return usagef("%q is no JA4 fingerprint: write it like t13d1516h2_8daaf6152771_b186095e22b6", req.JA4)
	}
	for _, h := range req.Headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || !token.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			return usagef("%q is no header: write it like 'Accept: text/html'", h)
		}
	}
	return nil
}

func usagef(format string, args ...any) error {
	return &api.Error{Usage: true, Message: fmt.Sprintf(format, args...)}
}
