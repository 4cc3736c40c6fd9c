// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// listen reads a listen directive of TCP.
func (c *config) listen(d *directive) (listen, bool) {
	if len(d.args) == 0 {
		return listen{}, false
	}
	for _, a := range d.args[1:] {
		if a == "quic" || a == "udp" {
			c.draft.Leave(d.Origin, d.text(), "Narthex sees TCP alone", "clients can be kept from UDP by a firewall")
			return listen{}, false
		}
		if a == "proxy_protocol" && len(c.trusted) == 0 {
			c.draft.Leave(d.Origin, d.text(), "it is not said whose PROXY header is true", "name the proxies: trusted_proxies")
		}
	}
	addr, ok := listenAddr(d.args[0])
	if !ok {
		c.draft.Leave(d.Origin, d.text(), "a service listens at an IP address and a port", "")
	}
	return listen{addr, slices.Contains(d.args, "ssl"), slices.Contains(d.args, "default_server") || slices.Contains(d.args, "default")}, ok
}

// listenAddr writes an address as a policy does.
func listenAddr(text string) (string, bool) {
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		text = "*:" + text
	}
	host, port := text, "80"
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:i], text[i+1:]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", false
	}
	port = strconv.FormatUint(n, 10)
	if host == "*" {
		return "*:" + port, true
	}
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil || a.Zone() != "":
		return "", false
	case a.IsUnspecified():
		return "*:" + port, true
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)).String(), true
}
