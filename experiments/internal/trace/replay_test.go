// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"narthex/experiments/internal/trace"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// TestReplayOfADay has a server send files of the sizes that the day has.
func TestReplayOfADay(t *testing.T) {
	const longest = 1 << 20
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.Query().Get("size"))
		if err != nil || size > longest {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size))
	}))
	t.Cleanup(s.Close)
	day, want := trace.Generate(1, 400), uint64(0)
	arrivals := trace.Arrivals(day, func(r trace.Request) string {
		size := min(r.Size, longest)
		want += uint64(size)
		return fmt.Sprintf("/file?size=%d", size)
	})
	// The day lasts for a second, and the run for as long as answers come.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := load.Trace{
		Client: load.Client{
			Target:   netip.MustParseAddrPort(s.Listener.Addr().String()),
			Duration: time.Minute, Timeout: time.Minute,
		},
		Arrivals: arrivals, Length: 60 * trace.Day, Connections: 8,
	}.Start(ctx)
	nettest.Check(t, err)
	for end := time.After(time.Minute); run.Total().Outcomes[load.OK] < 400; time.Sleep(10 * time.Millisecond) {
		select {
		case <-end:
			t.Fatalf("outcomes %v, want 400 that are OK", run.Total().Outcomes)
		default:
		}
	}
	cancel()
	report, err := run.Wait()
	nettest.Check(t, err)
	if report.Outcomes[load.OK] != 400 || report.Bytes != want {
		t.Errorf("%d bytes, outcomes %v; want %d bytes of 400 requests", report.Bytes, report.Outcomes, want)
	}
}
