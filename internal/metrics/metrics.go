// SPDX-License-Identifier: Apache-2.0

// Package metrics shows an instance's counters to Prometheus.
package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

const (
	// manyRules is the number of rules beyond which those that have matched nothing are
	// left out, lest a scrape grows with the policy.
	manyRules = 1000

	scrapesAtOnce = 4
	scrapeLimit   = 10 * time.Second
	// answersAtOnce bounds those that are in memory as well, until slow readers have taken them.
	answersAtOnce = 8
)

// Handler serves GET /metrics and nothing else. Each scrape reads the status anew.
func Handler(status func() (api.Status, error)) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector{status, &labelCache{}},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", atOnce(answersAtOnce, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeLimit,
		// To compress the series of a thousand rules takes longer than all the rest of a scrape, on
		// the machine whose CPUs are scarce.
		DisableCompression: true,
	})))
	return mux
}

// atOnce turns away those who ask while so many are answered.
func atOnce(most int, next http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "too many scrape at once: try again later", http.StatusServiceUnavailable)
		}
	})
}

// The metrics. The values of all labels come from the policy, the interfaces and lists in
// this program, none from a packet.
var (
	syns        = counter("syns_total", "SYNs to a service by what became of them. would_drop: passed because the service is in shadow mode.", "service", "verdict")
	ruleSYNs    = counter("rule_syns_total", "SYNs that a connection rule has decided.", "rule", "verdict")
	ruleReqs    = counter("rule_requests_total", "Requests that a request rule has decided. dropped: rejected or dropped; demoted: put into the lowest class.", "rule", "verdict")
	refusals    = counter("rule_limit_refusals_total", "SYNs and requests that have found no token in one of the limits of a rule.", "table", "rule", "limit")
	synRate     = gauge("rule_syn_rate", "SYNs per second that a connection rule whose rate sets itself lets pass now. Absent: it limits nothing.", "rule")
	reqRate     = gauge("rule_request_rate", "Requests per second that a request rule whose rate sets itself lets pass now. Absent: it limits nothing.", "rule")
	unruled     = counter("unruled_packets_total", "Packets decided without a rule, by reason.", "reason", "verdict")
	listening   = gauge("service_listening", "Whether a server listens on every address and port of the service.", "service")
	serviceInfo = gauge("service_info", "A service, whether its policy is enforced or only tried (shadow), and what it speaks.", "service", "mode", "protocol")
	attached    = gauge("attachment_info", "An interface on which a service is policed, and how.", "service", "interface", "mode")
	enforcing   = gauge("enforcing", "Whether any interface is being policed.")
	adopted     = gauge("adopted", "Whether the daemon found the instance in force when it started.")
	notes       = gauge("notes", "Things that are not as one might expect. `narthex status` says which.")
	overrides   = gauge("overrides", "Limits that were set by hand.")
	sources     = gauge("sources", "Per-source token buckets in use.")
	indebted    = gauge("sources_indebted", "Of the per-source token buckets in use, those that are not full.")
	sourcesMax  = gauge("sources_limit", "Per-source token buckets that there can be.")
	mapBytes    = gauge("map_bytes", "Kernel memory that the maps hold.")
	buildInfo   = gauge("build_info", "The version of the daemon, and of Go that built it.", "version", "goversion")
	listeners   = gauge("event_listeners", "Who listens to events now.")
	events      = counter("events_total", "Events that the kernel has told of, while somebody listened.")
	missed      = counter("events_missed_total", "Events that were not told of while somebody listened. budget: more than a CPU may tell of; slow_listener: one reads too slowly.", "cause")
)

type collector struct {
	status func() (api.Status, error)
	cache  *labelCache
}

// Describe names all metrics.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range families {
		ch <- f.desc
	}
}

// Collect reads the status and makes all series of it.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.status()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(syns.desc, err)
		return
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	c.cache.begin(s.Instance)
	out := sink{ch, c.cache}
	out.services(s)
	out.rules(s)
	out.policy(s)
	out.rooms(s)
	out.pools(s)
	out.put(enforcing, truth(s.Enforcing))
	out.put(adopted, truth(s.Adopted))
	out.put(notes, float64(len(s.Notes)))
	out.put(sources, float64(s.Sources.Used))
	out.put(indebted, float64(s.Sources.Debt))
	out.put(sourcesMax, float64(s.Sources.Size))
	out.put(mapBytes, float64(s.MapBytes))
	out.put(buildInfo, 1, s.Version, runtime.Version())
	out.put(listeners, float64(s.Events.Listeners))
	out.put(events, float64(s.Events.Told))
	out.put(missed, float64(s.Events.Missed), "budget")
	out.put(missed, float64(s.Events.Behind), "slow_listener")
}

// sink takes the series of one scrape.
type sink struct {
	ch    chan<- prometheus.Metric
	cache *labelCache
}

func (s sink) put(f *family, value float64, labels ...string) {
	s.ch <- &sample{f, s.cache.of(f, labels), value}
}

func (s sink) services(status api.Status) {
	for _, service := range status.Services {
		s.counts(syns, service.Name, service.Counts.Counts)
		s.put(listening, truth(service.Listening), service.Name)
		s.put(serviceInfo, 1, service.Name, service.Mode, string(service.Protocol))
		for _, on := range service.Interfaces {
			s.put(attached, 1, service.Name, on.Name, string(on.Mode))
		}
	}
}

// rate shows the rate of a rule that sets itself.
func (s sink) rate(of *family, rule api.RuleStatus) {
	if rule.RateNow > 0 {
		s.put(of, rule.RateNow, rule.Name)
	}
}

// limits shows what the limits of a rule have refused.
func (s sink) limits(table string, rule api.RuleStatus) {
	for i, l := range rule.Limits {
		s.put(refusals, float64(l.Refused), table, rule.Name, strconv.Itoa(i+1))
	}
}

func (s sink) rules(status api.Status) {
	for _, rule := range status.Rules {
		if rule.Matched > 0 || len(status.Rules) <= manyRules {
			s.counts(ruleSYNs, rule.Name, rule.Counts.Counts)
			s.rate(synRate, rule)
			s.limits("connections", rule)
		}
	}
	for _, rule := range status.Requests {
		if rule.Matched > 0 || len(status.Requests) <= manyRules {
			s.counts(ruleReqs, rule.Name, rule.Counts.Counts)
			if rule.Over == "demote" {
				s.put(ruleReqs, float64(rule.Demoted), rule.Name, "demoted")
			}
			s.rate(reqRate, rule.RuleStatus)
			s.limits("requests", rule.RuleStatus)
		}
	}
	for reason, counts := range status.Reasons {
		s.counts(unruled, reason, counts)
	}
}

func (s sink) counts(f *family, name string, c datapath.Counts) {
	s.put(f, float64(c.Passed), name, "passed")
	s.put(f, float64(c.Dropped), name, "dropped")
	s.put(f, float64(c.WouldDrop), name, "would_drop")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
