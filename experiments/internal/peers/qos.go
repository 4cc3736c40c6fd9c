// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"path/filepath"
	"regexp"
)

// QoS is mod_qos in Apache. It follows the module's own page, "Request Level Control",
// "Events" and the use case "Many Requests to a Single URL". Those that are denied are
// answered with 503.
//
// The module has two kinds of rates. QS_EventLimitCount denies: so many requests in each
// period of a second, which begins with its first request, and no more. That is what the
// papers' module did. It counts in whole seconds, and a period of one lasts for two: with "10
// 1" 5 requests a second are let through in the long run. What is configured here is twice the
// rate, which lets the rate through.
//
// QS_LocRequestPerSecLimit does not deny but delays, by what it learns from the rate over ten
// seconds, and each request that it delays has a process of the server; the page wants
// QS_LocRequestLimit beside it. Neither knows of bursts.
//
// Apache with the module is killed in the end, not asked to end: a process that is asked
// while it waits for the module's lock waits for it again in its signal handler, for ever,
// and so do all others.
type QoS struct {
	Deny        []RateLimit        // QS_EventLimitCount; Burst is not used
	Delay       []DelayLimit       // QS_LocRequestPerSecLimit
	Concurrency []ConcurrencyLimit // QS_LocRequestLimit; of a class with a network, QS_EventRequestLimit
}

// DelayLimit slows down the requests of a path to a number per second.
type DelayLimit struct {
	Path     string
	Rate     int // requests per second
	Requests int // served or delayed at once, beyond which they are denied
}

// Follows says which documentation the configuration follows.
func (*QoS) Follows() string {
	return `http://mod-qos.sourceforge.net/ sections "Request Level Control", "Status Code and Error Page", "Events", "Sample Use Cases: Many Requests to a Single URL"`
}

// directives are those of Apache's main server.
func (q *QoS) directives() []string {
	d := []string{module("setenvif")}
	// Debian 12 builds the module for PCRE 1 and does not link it with that library, which
	// its Apache had and has no more.
	for _, library := range pcre() {
		d = append(d, "LoadFile "+library)
	}
	d = append(d, module("qos"), "QS_ErrorResponseCode 503")
	for i, l := range q.Deny {
		event := fmt.Sprintf("DENY%d", i)
		d = append(d, l.event(event), fmt.Sprintf("QS_EventLimitCount %s %d 1", event, 2*l.Rate))
	}
	for _, l := range q.Delay {
		d = append(d, fmt.Sprintf("QS_LocRequestPerSecLimit %s %d", l.Path, l.Rate), fmt.Sprintf("QS_LocRequestLimit %s %d", l.Path, l.Requests))
	}
	for i, l := range q.Concurrency {
		if !l.From.IsValid() {
			d = append(d, fmt.Sprintf("QS_LocRequestLimit %s %d", l.path(), l.Requests))
			continue
		}
		event := fmt.Sprintf("AT_ONCE%d", i)
		d = append(d, l.event(event), fmt.Sprintf("QS_EventRequestLimit %s %d", event, l.Requests))
	}
	return d
}

// pcre finds the library where Debian has it.
func pcre() []string {
	found, _ := filepath.Glob("/usr/lib/*-linux-*/libpcre.so.3") // the pattern is right
	return found
}

// event sets a variable for the requests of the class, which makes them events.
func (c Class) event(name string) string {
	if !c.From.IsValid() {
		return fmt.Sprintf(`SetEnvIf Request_URI "^%s" %s=1`, regexp.QuoteMeta(c.path()), name)
	}
	return fmt.Sprintf(`SetEnvIfExpr "-R '%s' && %%{REQUEST_URI} =~ m#^%s#" %s=1`, c.From, regexp.QuoteMeta(c.path()), name)
}

// path is what the class's paths begin with.
func (c Class) path() string {
	if c.Path == "" {
		return "/"
	}
	return c.Path
}

// module loads one of Apache's modules, unless it is there.
func module(name string) string {
	return fmt.Sprintf("<IfModule !%[1]s_module>\nLoadModule %[1]s_module /usr/lib/apache2/modules/mod_%[1]s.so\n</IfModule>", name)
}
