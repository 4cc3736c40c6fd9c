// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startTimeout is how long a server may take until it accepts connections, and
// stopTimeout how long it may take to end.
const (
	startTimeout = 10 * time.Second
	stopTimeout  = 5 * time.Second
)

// Server is a process that accepts connections in a namespace.
type Server struct {
	cmd    *Cmd
	stderr head
	done   chan struct{} // closed once the process has ended and been waited for
	stop   func() error
}

// Serve starts a command and waits until it accepts connections on every one of the
// addresses. It ends with the namespace, or with Close. If it does not come up, the
// error says what it wrote to its standard error.
func (n *Namespace) Serve(cmd *Cmd, listen ...netip.AddrPort) (*Server, error) {
	s := &Server{cmd: cmd, done: make(chan struct{})}
	s.stop = sync.OnceValue(func() error {
		if cmd.kill {
			return s.kill()
		}
		return Terminate(cmd.Process, s.done)
	})
	cmd.Stderr = &s.stderr
	cmd.WaitDelay = time.Second // not for others that inherited its stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n.OnClose(s.stop)
	go func() {
		_ = cmd.Wait() // what it wrote says more than its exit status
		close(s.done)
	}()
	for _, addr := range listen {
		if err := n.awaitListener(addr, s.done); err != nil {
			stopErr := s.Close() // from here on nobody writes to stderr
			return nil, errors.Join(fmt.Errorf("%w: %s", err, strings.TrimSpace(s.stderr.String())), stopErr)
		}
	}
	return s, nil
}

// PID is the process of the server, the first of them if it has several.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// PIDs returns the processes of the server: the first one, then those that it started.
func (s *Server) PIDs() ([]int, error) {
	children, err := childrenOf(s.PID())
	return append([]int{s.PID()}, children...), err
}

// awaitWorkers waits until the server has started so many processes.
func (s *Server) awaitWorkers(n int) error {
	for end := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		pids, err := s.PIDs()
		if err != nil || len(pids) > n {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("it has started %d of %d processes in %v", len(pids)-1, n, startTimeout)
		}
	}
}

// Signal sends a signal to all processes of the server. With SIGSTOP it answers nobody
// until SIGCONT, while the kernel goes on with handshakes for it.
func (s *Server) Signal(signal syscall.Signal) error {
	pids, err := s.PIDs()
	if err != nil {
		return fmt.Errorf("list the processes of the server: %w", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil {
			return fmt.Errorf("send %v to process %d: %w", signal, pid, err)
		}
	}
	if signal == syscall.SIGSTOP {
		return s.stopped()
	}
	return nil
}

// stopped waits until no thread runs: one that is on another core goes on for a moment.
func (s *Server) stopped() error {
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		running := false
		pids, err := s.PIDs()
		if err != nil {
			return fmt.Errorf("list the processes of the server: %w", err)
		}
		for _, pid := range pids {
			stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
			for _, path := range stats {
				stat, err := os.ReadFile(path)
				running = running || err == nil && !bytes.Contains(stat, []byte(") T "))
			}
		}
		if !running {
			return nil
		}
	}
	return fmt.Errorf("stop the server: it did not within %v", stopTimeout)
}

// kill kills all processes of the server, and waits until none has its sockets any more.
func (s *Server) kill() error {
	pids, err := s.PIDs()
	if !alive(s.PID()) {
		pids, err = nil, nil
	}
	if killErr := syscall.Kill(-s.PID(), syscall.SIGKILL); killErr != nil && killErr != syscall.ESRCH {
		err = errors.Join(err, killErr)
	}
	<-s.done
	for end := time.Now().Add(stopTimeout); err == nil && slices.ContainsFunc(pids, alive); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			err = fmt.Errorf("of the processes %v some did not end within %v", pids, stopTimeout)
		}
	}
	if err != nil {
		return fmt.Errorf("kill process group %d: %w", s.PID(), err)
	}
	return nil
}

// alive reports whether there is a process, other than one that nobody has waited for.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

// Close stops the server at once, with the connections it has. Closing twice is no error.
func (s *Server) Close() error { return s.stop() }

// Terminate asks a process to end, and kills it if it has not within five seconds. The
// channel must be closed once the process has been waited for.
func Terminate(p *os.Process, done <-chan struct{}) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop process %d: %w", p.Pid, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
	}
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	<-done
	return fmt.Errorf("stop process %d: it did not end within %v and was killed", p.Pid, stopTimeout)
}

// awaitListener waits until a connection from within the namespace to addr succeeds. It
// gives up when ended is closed: the server is gone.
func (n *Namespace) awaitListener(addr netip.AddrPort, ended <-chan struct{}) error {
	deadline := time.Now().Add(startTimeout)
	to := addr
	if addr.Addr() == netip.IPv6Unspecified() {
		// Both families, for which the dialer would leave this thread, and so the namespace.
		to = netip.AddrPortFrom(netip.IPv6Loopback(), addr.Port())
	}
	for {
		err := n.Do(func() error {
			conn, err := net.DialTimeout("tcp", to.String(), time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for a listener on %s: %w", addr, err)
		}
		select {
		case <-ended:
			return fmt.Errorf("wait for a listener on %s: the server has ended", addr)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// head keeps the first 4096 bytes that are written to it.
type head struct{ strings.Builder }

// Write takes everything and keeps what there is room for.
func (h *head) Write(b []byte) (int, error) {
	h.Builder.Write(b[:min(len(b), 4096-h.Len())])
	return len(b), nil
}
