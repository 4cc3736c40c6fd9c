// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestDaemonThatDoesNotAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket) // the kernel takes connections for it
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := NewClient(socket)
	c.http.Timeout = 20 * time.Millisecond
	_, err = c.Reload(t.Context(), ReloadRequest{})
	want := fmt.Sprintf("the daemon on %q does not answer, and may yet do what was asked of it: see its log, and `narthex status` when it answers", socket)
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
}
