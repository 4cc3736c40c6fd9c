// SPDX-License-Identifier: Apache-2.0

package figures

import "testing"

func TestFigures(t *testing.T) {
	check := func(write func(float64) string, of map[float64]string) {
		t.Helper()
		for v, want := range of {
			if got := write(v); got != want {
				t.Errorf("%v: %q, want %q", v, got, want)
			}
		}
	}
	check(Rate, map[float64]string{
		0: "0", 0.001: "0.1", 1: "1.0", 9.94: "9.9", 9.95: "10", 12.4: "12", 99_999.4: "99999", 99_999.6: "100k", 999_499: "999k",
		999_500: "1M", 1e18: "1E",
	})
	check(Age, map[float64]string{-1: "0s", 59.9: "59s", 60: "1m", 3599: "59m", 7200: "2h", 172_799: "47h", 172_800: "2d"})
	check(Span, map[float64]string{0: "0µs", 0.0012: "1.2ms", 0.25: "250ms", 2.9: "2.9s", 60: "60s"})
	if got := Amount(12_345_678); got != "12.3M" {
		t.Errorf("amount: %q", got)
	}
}
