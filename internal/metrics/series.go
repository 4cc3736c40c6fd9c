// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// family is a metric with all its series.
type family struct {
	desc   *prometheus.Desc
	kind   dto.MetricType
	labels []string // narthex_instance is the first: a scrape has an instance of its own
}

// families are all there are.
var families []*family

func newFamily(kind dto.MetricType, name, help string, labels []string) *family {
	labels = append([]string{"narthex_instance"}, labels...)
	f := &family{prometheus.NewDesc("narthex_"+name, help, labels, nil), kind, labels}
	families = append(families, f)
	return f
}

func gauge(name, help string, labels ...string) *family {
	return newFamily(dto.MetricType_GAUGE, name, help, labels)
}

func counter(name, help string, labels ...string) *family {
	return newFamily(dto.MetricType_COUNTER, name, help, labels)
}

func histogram(name, help string, labels ...string) *family {
	return newFamily(dto.MetricType_HISTOGRAM, name, help, labels)
}

// mostLabels is how many a series has beside the instance.
const mostLabels = 3

// seriesKey is a series of an instance, with the values of its labels.
type seriesKey struct {
	family *family
	values [mostLabels]string
}

// labelCache keeps the labels of series from one scrape to the next: a thousand rules have three
// thousand series, and to make labels takes longer than all the rest.
type labelCache struct {
	mu       sync.Mutex // held during a scrape
	instance string
	pairs    map[seriesKey][]*dto.LabelPair
	used     int // series of this scrape
}

// begin makes the cache ready for a scrape. What has gone with a policy is let go when it is as
// much as what there is.
func (c *labelCache) begin(instance string) {
	if c.pairs == nil || c.instance != instance || len(c.pairs) > 2*c.used {
		c.pairs = map[seriesKey][]*dto.LabelPair{}
	}
	c.instance, c.used = instance, 0
}

func (c *labelCache) of(f *family, values []string) []*dto.LabelPair {
	key := seriesKey{family: f}
	copy(key.values[:], values)
	c.used++
	if pairs, ok := c.pairs[key]; ok {
		return pairs
	}
	pairs := make([]*dto.LabelPair, len(f.labels))
	for i := range f.labels {
		value := c.instance
		if i > 0 {
			value = strings.ToValidUTF8(values[i-1], "\uFFFD")
		}
		pairs[i] = &dto.LabelPair{Name: &f.labels[i], Value: &value}
	}
	slices.SortFunc(pairs, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	c.pairs[key] = pairs
	return pairs
}

// sample is one series at the time of a scrape. It is a prometheus.Metric.
type sample struct {
	family *family
	labels []*dto.LabelPair
	value  float64
}

// Desc returns that of the family.
func (m *sample) Desc() *prometheus.Desc { return m.family.desc }

// Write fills in what a registry asks for.
func (m *sample) Write(out *dto.Metric) error {
	out.Label = m.labels
	if m.family.kind == dto.MetricType_COUNTER {
		out.Counter = &dto.Counter{Value: &m.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &m.value}
	}
	return nil
}
