// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"narthex/internal/policy"
)

// Where those who wait are let go, who comes meanwhile finds a queue: it was answered 503.
func TestOpenedHasAQueue(t *testing.T) {
	queue := policy.Queue{Size: 100, MaxWait: 5 * time.Second, MaxService: time.Minute, Target: time.Second}
	from := &policy.Tables{
		Services: []policy.ServiceTable{{Room: policy.RoomTable{Protocol: policy.HTTP, Limit: 2, Queue: queue, Ruled: true, Pool: 1}}},
		Classes:  []policy.ClassTable{{Max: 50}},
	}
	to := opened(from, time.Hour)
	room := to.Services[0].Room
	if want := (policy.Queue{Size: 100, MaxWait: time.Hour, MaxService: time.Minute}); room.Queue != want {
		t.Errorf("queue %+v, want %+v", room.Queue, want)
	}
	if room.Limit != 0 || room.Ruled || room.Pool != 0 || to.Classes[0].Max != 0 {
		t.Errorf("room %+v, classes %+v: somebody would have to wait", room, to.Classes)
	}
	if from.Services[0].Room.Queue != queue || from.Classes[0].Max != 50 {
		t.Error("the policy in force was changed")
	}
}
