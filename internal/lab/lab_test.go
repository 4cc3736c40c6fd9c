// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

func TestNamespaceGoesWithClose(t *testing.T) {
	nettest.Root(t)
	n, err := lab.NewNamespace("gone")
	nettest.Check(t, err)
	if _, err := netns.GetFromName(n.Name()); err != nil {
		t.Errorf("open the namespace by its name: %v", err)
	}
	nettest.Check(t, n.Close())
	if _, err := os.Stat(n.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after Close: %v, want it gone", n.Path(), err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

func TestSweepSparesTheLiving(t *testing.T) {
	n := nettest.Namespace(t, "alive")
	child := exec.Command("true")
	nettest.Check(t, child.Run())
	dead := filepath.Join(lab.Dir, fmt.Sprintf("narthex-dead-%d-1", child.Process.Pid))
	nettest.Check(t, os.WriteFile(dead, nil, 0o444))
	nettest.Check(t, unix.Mount(n.Path(), dead, "bind", unix.MS_BIND, ""))

	removed, err := lab.Sweep()
	nettest.Check(t, err)
	if got := strings.Join(removed, " "); !strings.Contains(got, dead) || strings.Contains(got, n.Path()) {
		t.Errorf("removed %q, want %q in it and %q not", got, dead, n.Path())
	}
	if _, err := os.Stat(n.Path()); err != nil {
		t.Errorf("the living namespace: %v", err)
	}
}

func TestDoReturnsToTheOldNamespace(t *testing.T) {
	n := nettest.Namespace(t, "do")
	home, err := netns.Get()
	nettest.Check(t, err)
	defer home.Close()
	var inside netns.NsHandle
	nettest.Check(t, n.Do(func() error {
		inside, err = netns.Get()
		return err
	}))
	defer inside.Close()
	if inside.Equal(home) {
		t.Error("Do stayed in the old namespace")
	}
	back, err := netns.Get()
	nettest.Check(t, err)
	defer back.Close()
	if !back.Equal(home) {
		t.Error("Do did not return to the old namespace")
	}
}

func TestCommandRunsInTheNamespaceOnItsCore(t *testing.T) {
	n := nettest.Namespace(t, "cmd")
	var st unix.Stat_t
	nettest.Check(t, unix.Stat(n.Path(), &st))
	mounts, err := os.Readlink("/proc/self/ns/mnt")
	nettest.Check(t, err)
	want := fmt.Sprintf("net:[%d]\n%s\nCpus_allowed_list:\t0\n", st.Ino, mounts)

	for name, run := range map[string]func(*lab.Cmd) (out []byte, err error){
		"Output":         (*lab.Cmd).Output,
		"CombinedOutput": (*lab.Cmd).CombinedOutput,
		"Run": func(c *lab.Cmd) ([]byte, error) {
			var out bytes.Buffer
			c.Stdout = &out
			err := c.Run()
			return out.Bytes(), err
		},
		"Start": func(c *lab.Cmd) ([]byte, error) {
			var out bytes.Buffer
			c.Stdout = &out
			if err := c.Start(); err != nil {
				return nil, err
			}
			err := c.Wait()
			return out.Bytes(), err
		},
	} {
		cmd := n.Command("sh", "-c", "readlink /proc/self/ns/net /proc/self/ns/mnt; grep Cpus_allowed_list /proc/self/status")
		cmd.CPUs = []int{0}
		if out, err := run(cmd); err != nil || string(out) != want {
			t.Errorf("%s: %q, error %v; want %q", name, out, err, want)
		}
	}
}

func TestDevicesAndAddressesGo(t *testing.T) {
	rig := nettest.Lab(t, 1)
	server := netip.AddrPortFrom(rig.ServerV4, 80)
	reach := func() error {
		return rig.Client.Do(func() error {
			conn, err := net.DialTimeout("tcp", server.String(), time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
	}
	nettest.Nginx(t, rig.Server, server)
	nettest.Check(t, reach())
	nettest.Check(t, rig.Client.SetDown(lab.Dev))
	if err := reach(); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("through a device that is down: %v", err)
	}
	nettest.Check(t, rig.Client.SetUp(lab.Dev))
	nettest.Check(t, reach())
	nettest.Check(t, rig.Client.RemoveAddr(lab.Dev, netip.PrefixFrom(rig.ClientsV4[0], 16)))
	if err := reach(); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without an address: %v", err)
	}
	nettest.Check(t, rig.Client.Delete(lab.Dev))
	if _, err := rig.Server.Link(lab.Dev); err == nil {
		t.Error("the other end of a deleted device is still there")
	}
}

func TestLabConnectsBothFamilies(t *testing.T) {
	rig := nettest.Lab(t, 3)
	s4, s6 := netip.AddrPortFrom(rig.ServerV4, 80), netip.AddrPortFrom(rig.ServerV6, 8080)
	nettest.Nginx(t, rig.Server, s4, s6)
	for i := range rig.ClientsV4 {
		get(t, rig.Client, rig.ClientsV4[i], s4)
		get(t, rig.Client, rig.ClientsV6[i], s6)
	}
}

// get fetches nginx's file from one address and checks its length.
func get(t *testing.T, n *lab.Namespace, from netip.Addr, to netip.AddrPort) {
	t.Helper()
	err := n.Do(func() error {
		// Dialled here, because the transport dials on goroutines of its own.
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		conn, err := d.Dial("tcp", to.String())
		if err != nil {
			return err
		}
		client := http.Client{Transport: &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
			DisableKeepAlives: true,
		}}
		resp, err := client.Get("http://" + to.String() + lab.NginxFile)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.ContentLength != lab.FileBytes {
			return fmt.Errorf("%s, %d bytes", resp.Status, resp.ContentLength)
		}
		return nil
	})
	if err != nil {
		t.Errorf("get from %s at %s: %v", from, to, err)
	}
}

func TestClientIsPrepared(t *testing.T) {
	rig := nettest.Lab(t, 1)
	for key, want := range map[string]string{
		"ipv4/tcp_tw_reuse":        "1",
		"ipv4/tcp_tw_reuse_delay":  "1",
		"ipv4/ip_local_port_range": "1024\t65535",
		"ipv4/tcp_max_tw_buckets":  "1000",
	} {
		got, err := rig.Client.ReadSysctl(key)
		nettest.Check(t, err)
		if got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
		if here, err := os.ReadFile("/proc/sys/net/" + key); err != nil || strings.TrimSpace(string(here)) == want {
			t.Errorf("%s outside is %q, too (error: %v)", key, here, err)
		}
	}
}

func TestOffloadsSwitch(t *testing.T) {
	rig := nettest.Lab(t, 1)
	for _, o := range []lab.Offload{
		lab.RxChecksum, lab.TxChecksum, lab.GRO, lab.GSO, lab.TSO, lab.RxVLAN, lab.TxVLAN,
	} {
		for _, on := range []bool{true, false} {
			// TSO needs tx checksums: ours are set one by one.
			nettest.Check(t, rig.Server.SetOffload(lab.Dev, lab.TxChecksum, true))
			if err := rig.Server.SetOffload(lab.Dev, o, on); err != nil {
				t.Errorf("switch %s to %v: %v", o, on, err)
			}
		}
	}
	if err := rig.Server.SetOffload(lab.Dev, "warp", true); err == nil {
		t.Error("an offload that does not exist was switched")
	}
}

func TestRPSIsSet(t *testing.T) {
	rig := nettest.Lab(t, 1)
	nettest.Check(t, rig.Server.SetRPS(lab.Dev, 0))
	// A new mount namespace with a /sys of this network namespace shows it.
	out, err := rig.Server.Command("unshare", "--mount", "sh", "-c",
		"mount -t sysfs sysfs /sys && cat /sys/class/net/eth0/queues/rx-0/rps_cpus").CombinedOutput()
	nettest.Check(t, err)
	if got := strings.TrimSpace(string(out)); got != "1" {
		t.Errorf("rps_cpus is %q, want %q", got, "1")
	}
}

func TestNginxEndsWithItsNamespace(t *testing.T) {
	nettest.Root(t)
	n, err := lab.NewNamespace("nginx")
	nettest.Check(t, err)
	s, err := n.StartNginx(lab.NginxConfig{
		Listen:  []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:80")},
		Workers: 2,
	})
	nettest.Check(t, err)
	pids, err := s.PIDs()
	nettest.Check(t, err)
	if len(pids) != 3 {
		t.Errorf("processes %v, want a master and 2 workers", pids)
	}
	if _, err := lab.ProcessCPU(pids[0]); err != nil {
		t.Error(err)
	}
	nettest.Check(t, n.Close())
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d after Close: %v, want it gone", pid, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "narthex-nginx-"+strconv.Itoa(os.Getpid())+"-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestNginxSaysWhyItDoesNotStart(t *testing.T) {
	n := nettest.Namespace(t, "nginx")
	addr := netip.MustParseAddrPort("192.0.2.1:80")
	_, err := n.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{addr}})
	if err == nil || !strings.Contains(err.Error(), "Cannot assign requested address") {
		t.Errorf("nginx on an address that is not there: %v", err)
	}
}
