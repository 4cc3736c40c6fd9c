// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// measured reports whether there are samples, and all of them numbers.
func measured(samples []float64) bool {
	return len(samples) > 0 && !slices.ContainsFunc(samples, math.IsNaN)
}

// Median is the sample in the middle or the mean of the two there, NaN unless all are numbers.
func Median(samples []float64) float64 {
	if !measured(samples) {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	low, high := s[(len(s)-1)/2], s[len(s)/2]
	if low == high { // also where both are infinite
		return low
	}
	return low/2 + high/2
}

// Range is from the least to the most sample, NaN unless all are numbers.
func Range(samples []float64) (least, most float64) {
	if !measured(samples) {
		return math.NaN(), math.NaN()
	}
	return slices.Min(samples), slices.Max(samples)
}

// Spread writes the median and, of several samples, the range.
func Spread(samples []float64) string {
	if !measured(samples) {
		return "not measured"
	}
	text := Number(Median(samples))
	if len(samples) < 2 {
		return text
	}
	least, most := Range(samples)
	return text + " (" + Number(least) + " to " + Number(most) + ")"
}

// Number writes three significant digits, or all before the point, with commas.
func Number(v float64) string {
	a := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return "–"
	case math.IsInf(v, 0):
		return strings.TrimPrefix(strings.Replace(strconv.FormatFloat(v, 'f', -1, 64), "Inf", "∞", 1), "+")
	case a >= 100 || v == math.Trunc(v):
		return commas(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	}
	digits := 2 - int(math.Floor(math.Log10(a)))
	text := strconv.FormatFloat(v, 'f', min(digits, 9), 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// commas groups a whole number's digits in threes.
func commas(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// unit appends one.
func unit(figure, name string) string { return strings.TrimSpace(figure + " " + name) }

// capital has a sentence begin with it.
func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
