// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"narthex/test/nettest"
)

// makeDeb makes the package and returns its path.
func makeDeb(t *testing.T) string {
	t.Helper()
	output(t, "make", "--no-print-directory", "deb", "DEBVERSION=1.2.3~test")
	path, err := filepath.Abs(filepath.Join(repository, "build", "narthex_1.2.3~test_"+runtime.GOARCH+".deb"))
	nettest.Check(t, err)
	t.Cleanup(func() { os.Remove(path) })
	return path
}

// lifeOfAPackage is what an administrator does, on a copy of this machine. Of the policy that
// is in force and of the administrator's own only removing and purging take anything.
const lifeOfAPackage = `
say() { echo "$@" >&2; exit 1; }
dpkg --no-triggers -i "$1"
[ ! -e /etc/systemd/system/multi-user.target.wants/narthex.service ] || say "the service is enabled"
[ ! -e /sys/fs/bpf/narthex ] || say "something is in force"
narthex check /etc/narthex/policy.yaml >/dev/null
for example in /usr/share/doc/narthex/examples/*.yaml; do narthex check "$example" >/dev/null; done
grep -q ExecStart=/usr/bin/narthex /usr/lib/systemd/system/narthex.service || say "the unit starts another binary"
echo "# mine" >>/etc/narthex/policy.yaml

narthex run --policy /etc/narthex/policy.yaml --keep 2>/run/log &
until narthex status >/dev/null 2>&1; do kill -0 $! || { cat /run/log >&2; exit 1; }; sleep 0.1; done
kill $!; wait $! || say "the daemon failed"
[ -d /sys/fs/bpf/narthex/default/links ] || say "nothing is kept"

dpkg --no-triggers -i "$1"
grep -q "# mine" /etc/narthex/policy.yaml || say "the policy was replaced"
[ -d /sys/fs/bpf/narthex/default/links ] || say "an upgrade has detached"
dpkg --no-triggers -r narthex
[ ! -e /sys/fs/bpf/narthex/default ] || say "removing has not detached"
[ ! -e /usr/bin/narthex ] || say "the binary is left"
[ -e /etc/narthex/policy.yaml ] || say "the policy was removed"

dpkg --no-triggers -i "$1"
mkdir -p /sys/fs/bpf/narthex/left/links
dpkg --no-triggers -P narthex
for left in /etc/narthex /sys/fs/bpf/narthex /usr/share/doc/narthex /usr/share/narthex /usr/lib/systemd/system/narthex.service; do
  [ ! -e $left ] || say "$left is left"
done
`

func TestPackage(t *testing.T) {
	t.Parallel()
	deb := makeDeb(t)
	t.Run("contents", func(t *testing.T) {
		list := output(t, "dpkg-deb", "--contents", deb)
		for _, want := range []string{
			"-rwxr-xr-x root/root", "./usr/bin/narthex\n", "./usr/lib/systemd/system/narthex.service\n", "./usr/lib/systemd/system/narthex@.service\n",
			"./usr/share/man/man1/narthex-run.1.gz\n", "./usr/share/bash-completion/completions/narthex\n", "./usr/share/zsh/site-functions/_narthex\n",
			"./usr/share/fish/vendor_completions.d/narthex.fish\n", "./usr/share/doc/narthex/README.md\n", "./usr/share/doc/narthex/docs/README.md\n",
			"./usr/share/doc/narthex/docs/decisions/README.md\n", "./usr/share/doc/narthex/docs/img/demo.svg\n", "./usr/share/doc/narthex/examples/priority.yaml\n",
			"./usr/share/narthex/prometheus/alerts.yml\n", "./usr/share/narthex/grafana/narthex.json\n", "./usr/share/narthex/kubernetes/narthex.yaml\n",
			"./usr/share/doc/narthex/copyright\n", "./etc/narthex/policy.yaml\n",
		} {
			if !strings.Contains(list, want) {
				t.Errorf("%s is missing", strings.TrimSpace(want))
			}
		}
		if got := output(t, "dpkg-deb", "--info", deb, "conffiles"); strings.TrimSpace(got) != "/etc/narthex/policy.yaml" {
			t.Errorf("conffiles: %q", got)
		}
	})
	t.Run("lintian", func(t *testing.T) {
		// Go's binaries are static.
		output(t, "lintian", "--allow-root", "--no-cfg", "--fail-on", "error,warning", "--suppress-tags", "statically-linked-binary", deb)
	})
	t.Run("life", func(t *testing.T) {
		ns := nettest.Lab(t, 1).Server
		work := open(t)
		script := fmt.Sprintf(`set -e
mount -t tmpfs tmpfs %[1]s
mkdir %[1]s/upper %[1]s/work %[1]s/root
mount -t overlay overlay -o lowerdir=/,upperdir=%[1]s/upper,workdir=%[1]s/work %[1]s/root
mount -t proc proc %[1]s/root/proc
mount --rbind /sys %[1]s/root/sys
mount -t bpf bpf %[1]s/root/sys/fs/bpf
mount --bind /dev %[1]s/root/dev
mount -t tmpfs tmpfs %[1]s/root/run
cp "$1" %[1]s/root/narthex.deb
exec chroot %[1]s/root sh -ec "$2" sh /narthex.deb`, work)
		cmd := ns.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", deb, lifeOfAPackage)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
	})
	t.Run("uninstall", func(t *testing.T) {
		dest := t.TempDir()
		output(t, "make", "--no-print-directory", "install", "DESTDIR="+dest)
		if _, err := exec.Command(filepath.Join(dest, "usr/local/bin/narthex"), "version").Output(); err != nil {
			t.Error(err)
		}
		output(t, "make", "--no-print-directory", "uninstall", "DESTDIR="+dest)
		if left := output(t, "find", dest, "-type", "f"); left != "" {
			t.Errorf("left by uninstall:\n%s", left)
		}
	})
}
