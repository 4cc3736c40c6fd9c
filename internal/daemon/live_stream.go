// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"net/http"
	"time"

	"narthex/internal/live"
)

// showLive answers with views, one per line, until the client goes or the daemon ends; with
// ?once=1 with the first that has rates.
func (d *daemon) showLive(w http.ResponseWriter, r *http.Request) {
	once, err := onlyOne(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	views, err := d.watch(r.Context())
	if err != nil {
		answer(w, nil, err)
		return
	}
	control := http.NewResponseController(w)
	// The server's limit on reading would end the request, of which there is no more to come.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	// The answer begins with the first view, so that a client whose daemon is busy can tell.
	for v := range views {
		if once && v.Interval == 0 {
			if control.Flush() != nil {
				return
			}
			continue
		}
		if writeView(w, control, v) != nil || once {
			return
		}
	}
}

func onlyOne(r *http.Request) (bool, error) {
	query := r.URL.Query()
	for key := range query {
		if key != "once" {
			return false, usagef("there is no parameter %q: use once=1", key)
		}
	}
	switch value := query.Get("once"); value {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, usagef("once=%s: use once=1, or leave it out", value)
	}
}

// writeView writes a line. A client that does not read for long is given up.
func writeView(w http.ResponseWriter, control *http.ResponseController, v live.View) error {
	if err := control.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return err
	}
	return control.Flush()
}
