// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
)

// connect answers CONNECT: with a tunnel to itself, but to a host called "refused".
func connect(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.RequestURI, "refused:") {
		http.Error(w, "no tunnel to there", http.StatusForbidden)
		return
	}
	tunnel(w, "HTTP/1.1 200 Connection established\r\n\r\n")
}

// upgrade switches to whatever protocol the client asks for, in which one echoes.
func upgrade(w http.ResponseWriter, r *http.Request) {
	protocol := r.Header.Get("Upgrade")
	if protocol == "" {
		http.Error(w, "say to which protocol", http.StatusUpgradeRequired)
		return
	}
	tunnel(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
}

// tunnel sends the head and then back whatever comes, until the client ends its half.
func tunnel(w http.ResponseWriter, head string) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	go func() {
		defer conn.Close()
		if _, err := io.WriteString(conn, head); err == nil {
			_, _ = io.Copy(conn, rw.Reader)
		}
	}()
}

// early answers before it reads the body of the request, which it then does to its end.
func (h *handler) early(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	if err := c.EnableFullDuplex(); err != nil { // else package http reads the body first
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if name := r.FormValue("for"); name != "" && !h.waitFor(name) {
		w.WriteHeader(http.StatusGatewayTimeout)
		return
	}
	answer(w, h.body)
	_ = c.Flush()
	_, _ = io.Copy(io.Discard, r.Body)
}

// serveLines speaks to connections of a listener line by line; see Config.Lines.
func (h *handler) serveLines(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go h.talk(conn)
	}
}

func (h *handler) talk(conn net.Conn) {
	defer conn.Close()
	h.noteLine(conn, "(connected)")
	if h.cfg.Banner != "" {
		_, _ = io.WriteString(conn, h.cfg.Banner+"\n")
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := lines.Text()
		h.noteLine(conn, line)
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "hush":
			continue
		case "wait":
			h.waitFor(rest)
		}
		if _, err := io.WriteString(conn, line+"\n"); err != nil || verb == "bye" {
			return
		}
	}
	_, _ = io.WriteString(conn, "(end)\n")
}
