// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"narthex/internal/lab/origin"
)

// Where a rule of the machine changes the port that clients ask for, requests go by undecided, on whichever of the
// two ports the service is, and status says so.
func TestRoomDetour(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ listen, want string }{
		"the port that the server has":  {"*:8080", "were established with the server of service web"},
		"the port that clients ask for": {"*:80", "requests for *:80 of service web come, and no server listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuled(t, map[string]uint16{"web": 8080}, "web")
			for _, command := range [][]string{
				{"nft", "add table ip nat"},
				{"nft", "add chain ip nat prerouting { type nat hook prerouting priority -100; }"},
				{"nft", "add rule ip nat prerouting tcp dport 80 redirect to :8080"},
			} {
				out, err := r.v4.server.Command(command[0], command[1:]...).CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %v: %s", command, err, out)
				}
			}
			r.enforce("version: 1\nservices: [{name: web, listen: [\"" + c.listen + "\"], concurrency: 2}]\n")
			for range 5 {
				v := r.v4.visit(bronze)
				v.get("/")
				v.wants(http.StatusOK)
			}
			notes := strings.Join(r.status().Notes, "\n")
			if !strings.Contains(notes, c.want) {
				t.Errorf("status says %q, want %q", notes, c.want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{})
		for range 5 {
			r.once(gold)
		}
		if notes := r.status().Notes; len(notes) > 0 {
			t.Errorf("status says %q", notes)
		}
	})
}
