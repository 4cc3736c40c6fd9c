// SPDX-License-Identifier: Apache-2.0

// Package metrics shows an instance's counters to Prometheus.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
)

const (
	// manyRules is the number of rules beyond which those that have matched nothing are
	// left out, lest a scrape grows with the policy.
	manyRules = 1000

	scrapesAtOnce = 4
	scrapeLimit   = 10 * time.Second
)

// Handler serves GET /metrics and nothing else. Each scrape reads the status anew.
func Handler(status func() (api.Status, error)) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector{status},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesAtOnce,
		Timeout:             scrapeLimit,
	}))
	return mux
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("narthex_"+name, help, append([]string{"instance"}, labels...), nil)
}

// The metrics. The values of all labels come from the policy, the interfaces and lists in
// this program, none from a packet.
var (
	syns       = desc("syns_total", "SYNs to a service by what became of them. would_drop: passed because the service is in shadow mode.", "service", "verdict")
	ruleSYNs   = desc("rule_syns_total", "SYNs that a connection rule has decided.", "rule", "verdict")
	unruled    = desc("unruled_packets_total", "Packets decided without a rule, by reason.", "reason", "verdict")
	listening  = desc("service_listening", "Whether a server listens on every address and port of the service.", "service")
	attached   = desc("attachment_info", "An interface on which a service is policed, and how.", "service", "interface", "mode")
	enforcing  = desc("enforcing", "Whether any interface is being policed.")
	adopted    = desc("adopted", "Whether the daemon found the instance in force when it started.")
	loaded     = desc("policy_loaded_timestamp_seconds", "When the policy in force was loaded.")
	overrides  = desc("overrides", "Limits that were set by hand.")
	sources    = desc("sources", "Per-source token buckets in use.")
	indebted   = desc("sources_indebted", "Of the per-source token buckets in use, those that are not full.")
	sourcesMax = desc("sources_limit", "Per-source token buckets that there can be.")
	mapBytes   = desc("map_bytes", "Kernel memory that the maps hold.")
	buildInfo  = desc("build_info", "The version of the daemon.", "version")
)

type collector struct {
	status func() (api.Status, error)
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		syns, ruleSYNs, unruled, listening, attached, enforcing, adopted, loaded,
		overrides, sources, indebted, sourcesMax, mapBytes, buildInfo,
	} {
		ch <- d
	}
	describeRooms(ch)
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.status()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(syns, err)
		return
	}
	out := sink{ch, s.Instance}
	for _, service := range s.Services {
		out.counts(syns, service.Name, service.Counts.Counts)
		out.gauge(listening, truth(service.Listening), service.Name)
		for _, on := range service.Interfaces {
			out.gauge(attached, 1, service.Name, on.Name, string(on.Mode))
		}
	}
	for _, rule := range s.Rules {
		if rule.Matched > 0 || len(s.Rules) <= manyRules {
			out.counts(ruleSYNs, rule.Name, rule.Counts.Counts)
		}
	}
	for reason, counts := range s.Reasons {
		out.counts(unruled, reason, counts)
	}
	out.rooms(s)
	out.gauge(enforcing, truth(s.Enforcing))
	out.gauge(adopted, truth(s.Adopted))
	out.gauge(loaded, float64(s.Policy.Loaded.UnixMilli())/1000)
	out.gauge(overrides, float64(len(s.Overrides)))
	out.gauge(sources, float64(s.Sources.Used))
	out.gauge(indebted, float64(s.Sources.Debt))
	out.gauge(sourcesMax, float64(s.Sources.Size))
	out.gauge(mapBytes, float64(s.MapBytes))
	out.gauge(buildInfo, 1, s.Version)
}

// sink adds the label that all metrics have.
type sink struct {
	ch       chan<- prometheus.Metric
	instance string
}

func (s sink) counts(d *prometheus.Desc, name string, c datapath.Counts) {
	for verdict, n := range map[string]uint64{"passed": c.Passed, "dropped": c.Dropped, "would_drop": c.WouldDrop} {
		s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), s.instance, name, verdict)
	}
}

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{s.instance}, labels...)...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
