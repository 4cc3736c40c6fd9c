// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
)

// waiters are clients in a process of its own that each send one request and wait, for a minute at the most.
// Processes may not have as many files open as are wanted here.
type waiters struct {
	Source netip.Addr
	Target netip.AddrPort
	Number int
	Time   time.Duration // for all to connect
}

// waitersEach is how many fit into a process.
const waitersEach = 5000

func init() {
	reexec.Register("waiters", func(config []byte) error {
		var w waiters
		if err := json.Unmarshal(config, &w); err != nil {
			return err
		}
		return w.run()
	})
}

// Wait starts clients of the lab that each connect, within the time to open, send one request and
// wait until end is called, for a minute at the most. Then they send an RST.
func (b *Bench) Wait(rig *lab.Lab, sources []netip.Addr, number int, open time.Duration) (end func() error, err error) {
	var processes []*lab.Cmd
	end = func() (err error) {
		for _, p := range processes {
			err = errors.Join(err, p.Process.Kill())
			_ = p.Wait() // killed
		}
		return err
	}
	for i := 0; number > 0; i++ {
		w := waiters{Source: sources[i%len(sources)], Target: Web(rig), Number: min(number, waitersEach), Time: open}
		program, env, err := reexec.Command("waiters", w)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		cmd := rig.Client.Command(program)
		cmd.Env, cmd.CPUs = env, b.ClientCPUs
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("start waiting clients: %w", err), end())
		}
		processes = append(processes, cmd)
		number -= w.Number
	}
	return end, nil
}

func (w waiters) run() error {
	request := fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", w.Target)
	begun := time.Now()
	for i := range w.Number {
		time.Sleep(time.Until(begun.Add(w.Time * time.Duration(i) / time.Duration(w.Number))))
		if err := w.ask(request); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	time.Sleep(time.Minute) // or until this process is killed
	return nil
}

// ask connects, sends the request and leaves the connection open.
func (w waiters) ask(request []byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: w.Source.As4()}); err != nil {
		return err
	}
	target := &unix.SockaddrInet4{Addr: w.Target.Addr().As4(), Port: int(w.Target.Port())}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Connect(fd, target)
	}
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, request)
	return err
}
