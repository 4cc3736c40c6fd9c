// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

func TestDiff(t *testing.T) {
	w := newWorld(t)
	file := w.write("p.yaml", webPolicy)
	same := w.write("same.yaml", "# other words\n"+webPolicy)
	next := w.write("q.yaml", strings.Replace(strings.Replace(webPolicy, "5/s", "6/s", 1), "concurrency: unlimited", "concurrency: 4", 1)+
		"  - {name: late, from: 10.0.0.0/8, action: drop}\n")
	bad := w.write("bad.yaml", "nonsense")
	tests := []struct {
		args string
		want result
	}{
		{"diff " + next, result{Code: 2, Err: "narthex: no daemon answers on DIR/default.sock: start it with `narthex run --policy FILE`\n"}},
		{"diff " + bad + " --against " + file, result{Code: 2, Err: "narthex: DIR/bad.yaml:1:1: a policy is a mapping of keys to values, not \"nonsense\"\n"}},
		{"diff --against " + file, result{Code: 2, Err: "narthex: --against compares two files: name the other one, too\n"}},
		{"diff " + same + " --against " + file, result{Out: "nothing would change: DIR/same.yaml means the same in other words (HASH)\n"}},
		{"diff " + file + " --against " + file, result{Out: "nothing would change: DIR/p.yaml is what is compared with (HASH)\n"}},
	}
	const inWords = "from DIR/p.yaml (HASH)\nto   DIR/q.yaml (HASH)\n\nservices\n  ~ web: concurrency: unlimited -> 4\n\nconnection rules\n" +
		"  ~ everyone: rate: 5/s -> 6/s; the buckets of its sources start full\n  + late: from 10.0.0.0/8 to any service: drop; after everyone\n"
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, w.said(strings.Fields(tt.args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
	}
	if got := w.said("diff", next, "--against", file); got.Code != 1 || got.Out != inWords || !strings.Contains(got.Err, "can never match") {
		t.Errorf("offline: %+v", got)
	}

	w.kernel.SetRooms(datapath.Room{Waiting: 3, Classes: make([]datapath.RoomClass, 1)})
	end := w.run("--policy", file)
	if diff := cmp.Diff(result{Out: "nothing would change: DIR/p.yaml is what is compared with (HASH)\n"}, w.said("diff")); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	w.do("set", "connections.everyone.burst", "9")
	want := strings.Replace(inWords, "\n  + late", "\n  ~ everyone: burst: 9 -> 3\n  + late", 1) +
		"set by hand, and would end: connections.everyone.burst is 9\nservice web: 3 wait and would keep their class and place\n"
	if got := w.said("diff", next); got.Code != 1 || got.Out != want {
		t.Errorf("diff: %d\n%s", got.Code, cmp.Diff(want, got.Out))
	}
	var d api.DiffResult
	if got := w.do("diff", next, "--json"); got.Code != 1 || json.Unmarshal([]byte(got.Out), &d) != nil || len(d.Changes) != 4 || strings.Contains(got.Out, "null") {
		t.Errorf("diff --json: %+v", got)
	}
	if got := w.said("diff", bad); got.Code != 2 || got.Out != "" {
		t.Errorf("diff of nonsense: %+v", got)
	}
	end()
}
