// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"narthex/internal/lab"
)

// Nginx is an event-driven server: nginx with one process, in which each request for a
// file costs time of the core and all others wait meanwhile. The files are answered by a
// handler of its Perl module.
type Nginx struct {
	Listen  []netip.AddrPort
	Backlog int
	CPUs    []int
	Work    time.Duration // of the core, for each file, besides what it costs to serve it; as Apache's, by rounds
}

// Follows says which documentation the configuration follows.
func (Nginx) Follows() string {
	return `https://nginx.org/en/docs/http/ngx_http_perl_module.html; https://nginx.org/en/docs/ngx_core_module.html#worker_processes`
}

// perlText's round of work is the same as mod_lua's.
const perlText = `package narthex;
use nginx;
use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID);
my %%files = ("8k" => "narthex\n" x 1024, "1k" => "narthex\n" x 128);
sub burn {
	my ($n, $x) = (shift, 1);
	for my $i (1 .. $n) { $x = ($x * 5 + 1) %% 65536 }
	return $x;
}
sub answer {
	my ($r, $body) = @_;
	$r->header_out("Content-Length", length $body);
	$r->send_http_header("text/html");
	$r->print($body) unless $r->header_only;
	return OK;
}
sub work {
	my $r = shift;
	my ($name) = $r->uri =~ m{/([18]k)\.html$} or return HTTP_NOT_FOUND;
	burn(%d);
	return answer($r, $files{$name});
}
sub measure {
	my ($n, $least) = (%d, 9e9);
	for my $pass (1 .. %d) {
		my $begun = clock_gettime(CLOCK_PROCESS_CPUTIME_ID);
		burn($n);
		my $took = clock_gettime(CLOCK_PROCESS_CPUTIME_ID) - $begun;
		$least = $took if $took < $least;
	}
	return answer(shift, sprintf("%%.6f", $least / $n * 1e9));
}
1;
`

// Start starts nginx.
func (n Nginx) Start(ns *lab.Namespace) (*lab.Server, error) {
	rounds := 0
	if n.Work > 0 {
		var err error
		if rounds, err = perlRounds.in(n.Work, n.perlRound); err != nil {
			return nil, fmt.Errorf("measure a round of nginx's Perl: %w", err)
		}
	}
	return n.start(ns, rounds, `location ~ \.html$ { perl narthex::work; }`)
}

func (n Nginx) start(ns *lab.Namespace, rounds int, location string) (*lab.Server, error) {
	dir, err := ns.TempDir("perl")
	if err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, perlText, rounds, calibrationRounds, calibrationPasses)
	if err := os.WriteFile(filepath.Join(dir, "narthex.pm"), text, 0o644); err != nil {
		return nil, err
	}
	return ns.StartNginx(lab.NginxConfig{
		Listen: n.Listen, Backlog: n.Backlog, CPUs: n.CPUs, Workers: 1,
		Main:   "load_module /usr/lib/nginx/modules/ngx_http_perl_module.so;",
		HTTP:   fmt.Sprintf("perl_modules %s;\nperl_require narthex.pm;", dir),
		Server: location,
	})
}

// perlRound measures in a server of its own how long a round takes.
func (n Nginx) perlRound() (nanoseconds float64, err error) {
	return measureIn(func(ns *lab.Namespace, listen netip.AddrPort) error {
		n.Listen = []netip.AddrPort{listen}
		_, err := n.start(ns, 0, "location "+measurePath+" { perl narthex::measure; }")
		return err
	})
}
