// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"narthex/test/nettest"
)

// image is what the last stage of the Containerfile says.
type image struct {
	copies     [][2]string // from the build's file system, to the image's
	entrypoint []string
	cmd        []string
	health     []string
}

// readImage reads the instructions that it knows, and fails on others.
func readImage(t *testing.T) (im image) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "packaging/container/Containerfile"))
	nettest.Check(t, err)
	_, last, found := strings.Cut(string(text), "\nFROM scratch\n")
	if !found {
		t.Fatal("no stage from scratch")
	}
	for line := range strings.Lines(last) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		list := func(into *[]string) {
			nettest.Check(t, json.Unmarshal([]byte(rest), into))
		}
		switch word {
		case "", "#", "USER":
		case "COPY":
			paths := strings.Fields(strings.TrimPrefix(rest, "--from=build "))
			im.copies = append(im.copies, [2]string{paths[0], paths[1]})
		case "ENTRYPOINT":
			list(&im.entrypoint)
		case "CMD":
			list(&im.cmd)
		case "HEALTHCHECK":
			_, rest, _ = strings.Cut(rest, "CMD ")
			list(&im.health)
		default:
			t.Fatalf("this test does not know the instruction %q", word)
		}
	}
	return im
}

// unpack makes the image's file system, with the binary that was built.
func (im image) unpack(t *testing.T) string {
	t.Helper()
	root := open(t)
	nettest.Check(t, os.Chmod(root, 0o755))
	for _, c := range im.copies {
		from := filepath.Join(repository, strings.TrimPrefix(c[0], "/src/"))
		if c[0] == "/narthex" {
			from = binary
		}
		data, err := os.ReadFile(from)
		nettest.Check(t, err)
		nettest.Check(t, os.WriteFile(filepath.Join(root, c[1]), data, 0o755))
	}
	return root
}

// hostRun is where the host's command finds the socket, and the lock.
const hostRun = "/run/narthex"

// The image's file system and command line, as a container runtime would run them: read-only,
// as root, with the needed capabilities alone, and with what the documentation mounts.
func TestImageRuns(t *testing.T) {
	t.Parallel()
	im := readImage(t)
	root := im.unpack(t)
	rig := nettest.Lab(t, 1)
	policies := open(t)
	nettest.Check(t, os.MkdirAll(hostRun, 0o755))
	write(t, filepath.Join(policies, "policy.yaml"), guarded)
	for _, dir := range []string{"proc", "sys", "run/narthex", "etc/narthex"} {
		nettest.Check(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	group := cgroup(t)
	list := "-all,+" + strings.Join(needed, ",+")
	script := fmt.Sprintf(`set -e
mount --bind %[1]s %[1]s
mount -t proc proc %[1]s/proc
mount --rbind /sys %[1]s/sys
mount --bind %[2]s %[1]s/run/narthex
mount --bind -o ro %[3]s %[1]s/etc/narthex
mount -o remount,ro,bind %[1]s
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=%[4]s,+sys_chroot chroot %[1]s "$@"`, root, hostRun, policies, list)
	instance := fmt.Sprintf("image-%d", os.Getpid())
	command := slices.Concat([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group,
		"unshare", "--mount", "--cgroup", "--propagation", "private", "sh", "-c", script, "sh"},
		im.entrypoint, im.cmd, []string{"--instance", instance})
	t.Cleanup(func() { _ = exec.Command(binary, "detach", "--instance", instance).Run() })
	d := start(t, rig.Server, filepath.Join(hostRun, instance+".sock"), command...)
	onAllThreads(t, d.status().PID, map[string]string{"CapPrm": neededBits, "CapEff": neededBits, "NoNewPrivs": "1"})
	if !slices.Equal(im.health, append(slices.Clone(im.entrypoint), "status")) {
		t.Errorf("the image's health check is %q", im.health)
	}
	output(t, "chroot", root, im.entrypoint[0], "version")
	output(t, binary, "detach", "--instance", instance)
	if code := d.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// cgroup makes a cgroup, that of a container: there it is the root of a namespace of cgroups.
func cgroup(t *testing.T) string {
	t.Helper()
	mount, _, _ := strings.Cut(output(t, "findmnt", "--noheadings", "--types", "cgroup2", "--output", "TARGET"), "\n")
	dir := filepath.Join(mount, fmt.Sprintf("narthex-image-%d", os.Getpid()))
	nettest.Check(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		// The kernel takes a moment to forget processes that have ended.
		eventually(t, "the cgroup is removed", func() bool { return os.Remove(dir) == nil })
	})
	return dir
}

// refusesFile expects the command line to be right and the policy's file to be missing.
func refusesFile(t *testing.T, args []string) {
	t.Helper()
	out, err := exec.Command(binary, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/nonexistent/policy.yaml") {
		t.Errorf("narthex %s: %v, %s", strings.Join(args, " "), err, out)
	}
}
