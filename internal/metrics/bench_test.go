// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"narthex/internal/api"
)

// BenchmarkHandler is a scrape without the kernel's part: all that is made of a status. That of a
// real daemon is in test/prometheus.
func BenchmarkHandler(b *testing.B) {
	for _, rules := range []int{10, 1000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			room := &api.RoomStatus{Classes: make([]api.RoomClassStatus, 3)}
			for i, name := range []string{"gold", "silver", "bronze"} {
				room.Classes[i].Name = name
			}
			status := api.Status{
				Instance: "default", Services: []api.ServiceStatus{{Name: "shop", RoomStatus: room}},
				Rules: make([]api.RuleStatus, rules/2), Requests: make([]api.RequestRuleStatus, rules/2),
			}
			for i := range rules / 2 {
				status.Rules[i].Name, status.Requests[i].Name = fmt.Sprintf("net-%d", i), fmt.Sprintf("path-%d", i)
			}
			handler := Handler(func() (api.Status, error) { return status, nil })
			request := httptest.NewRequest("GET", "/metrics", nil)
			request.Header.Set("Accept-Encoding", "gzip")
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, request)
				b.SetBytes(int64(w.Body.Len()))
			}
		})
	}
}
