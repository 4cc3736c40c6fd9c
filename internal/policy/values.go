// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rate is how fast a bucket gains tokens. The zero Rate is none.
type Rate struct {
	Tokens int           // in Unit
	Unit   time.Duration // time.Second, time.Minute or time.Hour
}

// Interval is the time in which a bucket gains one token, to the nearest nanosecond, or 0
// for no rate.
func (r Rate) Interval() time.Duration {
	if r.Tokens == 0 {
		return 0
	}
	n := time.Duration(r.Tokens)
	return (r.Unit + n/2) / n
}

// rateUnits are the units of rates, as they are written.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// String returns the rate as in a policy: 100/s, 15/m or 1000/h.
func (r Rate) String() string {
	for word, unit := range rateUnits {
		if unit == r.Unit {
			return fmt.Sprintf("%d/%s", r.Tokens, word)
		}
	}
	return fmt.Sprintf("%d/s", r.Tokens)
}

// mostDebt bounds the time in which a bucket fills: one of the largest depth at 1/m.
const mostDebt = MaxBurst * time.Minute

// holds says why a bucket of that rate cannot be so deep, nil if it can.
func (r Rate) holds(burst int) error {
	if r.Tokens == 0 || burst <= int(mostDebt/r.Interval()) {
		return nil
	}
	return fmt.Errorf("a bucket of %d tokens at %s takes longer to fill than is counted; it has at most %d", burst, r, mostDebt/r.Interval())
}

// perSecond is the rate in whole tokens per second, rounded down.
func (r Rate) perSecond() int {
	if r.Tokens == 0 {
		return 0
	}
	return int(int64(r.Tokens) * int64(time.Second) / int64(r.Unit))
}

// PerSecond is the rate in tokens per second.
func (r Rate) PerSecond() float64 {
	if r.Tokens == 0 {
		return 0
	}
	return float64(r.Tokens) / r.Unit.Seconds()
}

// connectionBurst is the bucket depth of a connection rule's rate that names none, in tokens.
func connectionBurst(r Rate) int { return max(1, r.perSecond()/10) }

// pageBurst is how many requests a page is taken to need: a browser has up to six connections to a host,
// and asks three times on each. fewForPage is from where on a policy's own burst is not warned of.
const (
	pageBurst  = 20
	fewForPage = 10
)

// requestBurst is the bucket depth of a request rule's rate that names none, in tokens: who loads a page asks
// for what belongs to it at once.
func requestBurst(r Rate) int { return max(pageBurst, r.perSecond()/10) }

var rateForm = regexp.MustCompile(`^([0-9]+)/([smh])$`)

// parseRate reads 100/s, 15/m or 1000/h.
func parseRate(s string) (Rate, error) {
	m := rateForm.FindStringSubmatch(s)
	if m == nil {
		return Rate{}, fmt.Errorf("%s is not a rate; write %s", quote(s), likelyRate(s))
	}
	unit := rateUnits[m[2]]
	most := int(unit/time.Second) * MaxRate
	n, err := strconv.Atoi(m[1])
	switch {
	case err != nil || n > most:
		return Rate{}, fmt.Errorf("%s is more than can be counted; the most is %d/%s", quote(s), most, m[2])
	case n == 0:
		return Rate{}, fmt.Errorf(`%s lets nothing pass; write "action: drop" for that`, quote(s))
	case hasLeadingZero(s):
		return Rate{}, leadingZero(s, fmt.Sprintf("%d/%s", n, m[2]))
	}
	return Rate{n, unit}, nil
}

var looseRate = regexp.MustCompile(`^([0-9]+)(\.[0-9]+)?\s*(?:r?/?\s*([a-zA-Z]*))$`)

// likelyRate guesses the rate that was meant.
func likelyRate(s string) string {
	const form = "a whole number per second, minute or hour, as 100/s, 15/m or 1000/h"
	m := looseRate.FindStringSubmatch(s)
	if m == nil {
		return form
	}
	unit, whole := strings.ToLower(m[3]), m[2] == ""
	n, err := strconv.ParseFloat(m[1]+m[2], 64)
	if err != nil || n > MaxRate || n == 0 {
		return form
	}
	switch {
	case unit == "" && whole:
		return fmt.Sprintf("%.0f/s or %.0f/m: a rate has a unit", n, n)
	case unit == "":
		return form
	case whole && unit[0] == 'h':
		return fmt.Sprintf("%.0f/h", n)
	case !whole && (unit[0] == 's' || unit == "rps") && n*3600 < 0.5:
		return "1/h, the lowest rate"
	case !whole && (unit[0] == 's' || unit == "rps") && n*60 < 0.5:
		return fmt.Sprintf("%d/h: a rate is a whole number", int(n*3600+0.5))
	case !whole && (unit[0] == 's' || unit == "rps"):
		return fmt.Sprintf("%d/m: a rate is a whole number", int(n*60+0.5))
	case whole && (unit[0] == 's' || unit == "ps" || unit == "rps"):
		return fmt.Sprintf("%.0f/s", n)
	case whole && strings.HasPrefix(unit, "m") && unit != "ms":
		return fmt.Sprintf("%.0f/m", n)
	}
	return form
}

// hasLeadingZero reports a number that some read as octal.
func hasLeadingZero(s string) bool {
	return len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9'
}

func leadingZero(s, better string) error {
	return fmt.Errorf("%s begins with a zero, which some read as octal; write %s", quote(s), better)
}

// parseInt reads a whole number between two bounds.
func parseInt(least, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		switch {
		case errors.Is(err, strconv.ErrRange) && s[0] != '+':
			return 0, fmt.Errorf("%s is out of range; write a number from %d to %d", s, least, most)
		case err != nil || s[0] == '+':
			return 0, fmt.Errorf("%s is not a whole number; write one from %d to %d", quote(s), least, most)
		case n < least || n > most:
			return 0, fmt.Errorf("%d is out of range; write a number from %d to %d", n, least, most)
		case hasLeadingZero(s):
			return 0, leadingZero(s, strconv.Itoa(n))
		}
		return n, nil
	}
}

// maxMark is the highest socket mark that leaves one for each class.
const maxMark = math.MaxUint32 - MaxClasses

// parseMark reads a socket mark, 256 or 0x100.
func parseMark(s string) (uint32, error) {
	digits, base := s, 10
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 64)
	tooMuch := errors.Is(err, strconv.ErrRange)
	switch {
	case err != nil && !tooMuch:
		return 0, fmt.Errorf("%s is not a mark; write a number from 1 to %#x, as 256 or 0x100", quote(s), uint32(maxMark))
	case tooMuch || n < 1 || n > maxMark:
		return 0, fmt.Errorf("%s is out of range; write a number from 1 to %#x", quote(s), uint32(maxMark))
	case hasLeadingZero(s):
		return 0, leadingZero(s, strconv.FormatUint(n, 10))
	}
	return uint32(n), nil
}

// parseOrNone makes a parser also read none, which stands for 0.
func parseOrNone[N int | time.Duration](parse func(string) (N, error)) func(string) (N, error) {
	return func(s string) (N, error) {
		if s == "none" {
			return 0, nil
		}
		n, err := parse(s)
		if err != nil {
			return 0, fmt.Errorf("%w or none", err)
		}
		return n, nil
	}
}

// parseBurst reads a bucket depth in tokens.
var parseBurst = parseInt(1, MaxBurst)

// parsePercent reads 10% and returns 10.
func parsePercent(s string) (int, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	tooMuch := errors.Is(err, strconv.ErrRange)
	switch {
	case err != nil && !tooMuch || digits[0] == '+':
		return 0, fmt.Errorf("%s is not a share; write a whole number of percent, as 10%%", quote(s))
	case tooMuch || n < 1 || n > 100:
		return 0, fmt.Errorf("%s is out of range; write 1%% to 100%%", quote(s))
	case !ok:
		return 0, fmt.Errorf("%s has no unit; write %d%%", quote(s), n)
	case hasLeadingZero(s):
		return 0, leadingZero(s, fmt.Sprintf("%d%%", n))
	}
	return n, nil
}

// parseDuration reads 5s, 200ms or 1m30s between two bounds, in multiples of a step.
func parseDuration(least, most, step time.Duration) func(string) (time.Duration, error) {
	fit := func(v time.Duration) bool { return v >= least && v <= most && v%step == 0 }
	return func(s string) (time.Duration, error) {
		v, err := time.ParseDuration(s)
		_, noNumber := strconv.Atoi(s)
		switch {
		case noNumber == nil:
			return 0, fmt.Errorf("%s has no unit; write %s", quote(s), fitting(fit, least, most, s+"s", s+"ms"))
		case err != nil:
			return 0, fmt.Errorf("%s is not a duration; write a number with a unit, as %s", quote(s), fitting(fit, least, most, "200ms", "5s", "1m30s"))
		case v < least || v > most:
			return 0, fmt.Errorf("%s is out of range; write %s to %s", s, span(least), span(most))
		case v%step != 0:
			return 0, fmt.Errorf("%s is finer than this is counted; write a multiple of %s", s, span(step))
		case hasLeadingZero(s):
			return 0, leadingZero(s, strings.TrimLeft(s, "0"))
		}
		return v, nil
	}
}

// fitting returns those of the durations that are accepted, or the bounds of all.
func fitting(fit func(time.Duration) bool, least, most time.Duration, texts ...string) string {
	var fine []string
	for _, s := range texts {
		if v, err := time.ParseDuration(s); err == nil && fit(v) && !hasLeadingZero(s) {
			fine = append(fine, s)
		}
	}
	switch n := len(fine); n {
	case 0:
		return fmt.Sprintf("%s to %s", span(least), span(most))
	case 1:
		return fine[0]
	default:
		return strings.Join(fine[:n-1], ", ") + " or " + fine[n-1]
	}
}

// span returns a duration without parts that are zero: 1h and not 1h0m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// parseName checks a name that is used in paths such as connections.NAME.rate.
func parseName(s string) (string, error) {
	switch {
	case len(s) > MaxNameBytes:
		return "", fmt.Errorf("%s has %d bytes; a name has at most %d", quote(s), len(s), MaxNameBytes)
	case !nameForm.MatchString(s):
		return "", fmt.Errorf("%s is not a name; use letters, digits, - and _, a letter or digit first%s", quote(s), likelyName(s))
	}
	return s, nil
}

var noName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func likelyName(s string) string {
	n := strings.Trim(noName.ReplaceAllString(s, "-"), "-_")
	if !nameForm.MatchString(n) {
		return ""
	}
	return fmt.Sprintf(", as %q", n)
}

// parseWord reads one of a few words.
func parseWord[T ~string](words ...T) func(string) (T, error) {
	known := make([]string, len(words))
	for i, w := range words {
		known[i] = string(w)
	}
	return func(s string) (T, error) {
		for _, w := range words {
			if s == string(w) {
				return w, nil
			}
		}
		hint := didYouMean(nearest(s, known))
		if hint == "" {
			hint = "; write " + listing(known, "or")
		}
		return "", fmt.Errorf("%s is not known here%s", quote(s), hint)
	}
}

// parseBool reads true or false.
func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("%s is neither true nor false; write one of them", quote(s))
	}
	return s == "true", nil
}
