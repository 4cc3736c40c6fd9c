// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPick(t *testing.T) {
	versions := []string{
		"6.1.0-50-amd64", "6.1.0-9-amd64", "6.12.95+deb12-amd64", "6.12.117+deb13-amd64", "6.12.90+deb12.1-amd64",
		"7.3.4+deb13-amd64", "7.12.1+deb14-amd64",
	}
	for series, want := range map[string]string{
		"6.1": "6.1.0-50-amd64", "6.12": "6.12.117+deb13-amd64", "7.3": "7.3.4+deb13-amd64", "7.1": "", Newest: "7.12.1+deb14-amd64",
	} {
		if got := pick(versions, series); got != want {
			t.Errorf("series %s: %q, want %q", series, got, want)
		}
	}
}

func TestImageNames(t *testing.T) {
	for name, want := range map[string]bool{
		"linux-image-6.1.0-50-amd64":                  true,
		"linux-image-6.12.90+deb12.1-amd64":           true,
		"linux-image-7.3.4+deb13-amd64":               true,
		"linux-image-6.1.0-50-amd64-unsigned":         false,
		"linux-image-6.1.0-50-rt-amd64":               false,
		"linux-image-7.3.4+deb13-cloud-amd64":         false,
		"linux-image-6.12.90+deb12.1-amd64-dbg":       false,
		"linux-image-amd64":                           false,
		"linux-image-6.12.90+deb12.1-amd64-something": false,
	} {
		if got := imageName.MatchString(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMirror(t *testing.T) {
	for text, want := range map[string]string{
		"Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\n":          "http://mirror.example/debian",
		"deb [signed-by=/k.gpg] https://mirror.example/x/debian/ trixie main\n":     "https://mirror.example/x/debian",
		"deb http://mirror.example/debian trixie main\n":                            "http://mirror.example/debian",
		"# deb http://mirror.example/debian trixie main\n":                          "",
		"deb http://mirror.example/debian-security trixie-security main\n":          "",
		"Types: deb\nURIs: http://mirror.example/debian-security\nSuites: trixie\n": "",
	} {
		got := ""
		if m := debianURI.FindStringSubmatch(text); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A module comes behind those that it needs, and once.
func TestModuleFiles(t *testing.T) {
	dir := t.TempDir()
	text := "fs/9p/9p.ko.xz: net/9p/9pnet.ko.xz fs/netfs/netfs.ko.xz\n" +
		"net/9p/9pnet.ko.xz:\nfs/netfs/netfs.ko.xz:\nnet/9p/9pnet-virtio.ko.xz: net/9p/9pnet.ko.xz\n"
	if err := os.WriteFile(filepath.Join(dir, "modules.dep"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := Kernel{modules: dir}.moduleFiles([]string{"built_in", "9p", "9pnet_virtio"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"fs/netfs/netfs.ko.xz", "net/9p/9pnet.ko.xz", "fs/9p/9p.ko.xz", "net/9p/9pnet-virtio.ko.xz"}
	for i := range want {
		want[i] = filepath.Join(dir, want[i])
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCPIO(t *testing.T) {
	var c cpio
	c.file("ab", 0o644, []byte("xyz"))
	// Six digits that name the format, then 13 fields of eight, the name and the content, each up to four bytes.
	want := "070701" + "00000001" + "000081a4" + "00000000" + "00000000" + "00000001" + "00000000" + "00000003" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000003" + "00000000" + "ab\x00\x00\x00\x00" + "xyz\x00"
	if got := c.String(); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
