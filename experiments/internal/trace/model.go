// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"math"
	"math/rand/v2"
	"time"
)

// The parameters of SURGE, table 2 of the paper.
const (
	bodyMu, bodySigma   = 9.357, 1.318 // sizes in bytes, lognormal, up to tailFrom
	tailShare           = 0.07         // of the files, whose sizes are
	tailFrom, tailAlpha = 133e3, 1.1   // Pareto, from so many bytes on

	inactiveLeast, inactiveAlpha = 1, 1.5      // seconds between pages, Pareto
	activeScale, activeShape     = 1.46, 0.382 // seconds between a page's files, Weibull
	embeddedLeast, embeddedAlpha = 1, 2.43     // embedded files of a page, Pareto
)

// The parameters of the law of surfing: the number of a session's pages is inversely Gaussian. They
// are those of Pirolli, Pitkow: Distributions of Surfers' Paths Through the World Wide Web, World
// Wide Web 2, 1999.
const pagesMean, pagesShape = 3.86, 9.46

// model draws.
type model struct{ *rand.Rand }

// pareto draws from a Pareto distribution: P(X > x) = (least / x)^alpha.
func (m model) pareto(least, alpha float64) float64 {
	return least * math.Pow(1-m.Float64(), -1/alpha)
}

// weibull draws from a Weibull distribution.
func (m model) weibull(scale, shape float64) float64 {
	return scale * math.Pow(m.ExpFloat64(), 1/shape)
}

// inverseGaussian draws by the method of Michael, Schucany and Haas, The American Statistician 30, 1976.
func (m model) inverseGaussian(mean, shape float64) float64 {
	y := m.NormFloat64()
	y *= y
	x := mean + mean*mean*y/(2*shape) - mean/(2*shape)*math.Sqrt(4*mean*shape*y+mean*mean*y*y)
	if m.Float64() <= mean/(mean+x) {
		return x
	}
	return mean * mean / x
}

// size is that of a file in bytes.
func (m model) size() int64 {
	if m.Float64() < tailShare {
		return bytes(m.pareto(tailFrom, tailAlpha))
	}
	for {
		if size := math.Exp(bodyMu + bodySigma*m.NormFloat64()); size < tailFrom {
			return bytes(size)
		}
	}
}

// bytes are at least one, and no more than a file has.
func bytes(size float64) int64 { return int64(min(max(1, size), 1<<40)) }

// pages is how many a session has.
func (m model) pages() int {
	return max(1, int(math.Round(m.inverseGaussian(pagesMean, pagesShape))))
}

// embedded is how many files a page has embedded.
func (m model) embedded() int {
	return int(min(m.pareto(embeddedLeast, embeddedAlpha), 1e6))
}

// inactive is the time from a page's last file to the next page.
func (m model) inactive() time.Duration { return seconds(m.pareto(inactiveLeast, inactiveAlpha)) }

// active is the time from one file of a page to the next.
func (m model) active() time.Duration { return seconds(m.weibull(activeScale, activeShape)) }

// seconds is a time of no more than a day.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, Day.Seconds()) * float64(time.Second))
}
