// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"narthex/internal/importer/draft"
)

// run runs a program of the host.
func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if path, err := exec.LookPath(name); err != nil {
		cmd.Path, cmd.Err = "/usr/sbin/"+name, nil
	} else {
		cmd.Path = path
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// TestValid has the programs themselves read the configurations in testdata.
func TestValid(t *testing.T) {
	t.Run("nginx", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS("testdata/nginx")); err != nil {
			t.Fatal(err)
		}
		run(t, "", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=test",
			"-keyout", dir+"/key.pem", "-out", dir+"/cert.pem")
		pem := content(t, dir+"/cert.pem") + content(t, dir+"/key.pem")
		if err := os.WriteFile(dir+"/test.pem", []byte(pem), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, file := range cases[Nginx] {
			run(t, "", "nginx", "-t", "-p", dir, "-e", dir+"/error.log", "-g", "pid "+dir+"/pid;", "-c", filepath.Join(dir, file))
		}
	})
	t.Run("haproxy", func(t *testing.T) {
		for _, file := range cases[HAProxy] {
			run(t, "", "haproxy", "-c", "-f", filepath.Join("testdata", "haproxy", file))
		}
	})
	t.Run("iptables", func(t *testing.T) {
		for _, file := range cases[IPTables] {
			text := content(t, filepath.Join("testdata", "iptables", file))
			// A set has to exist.
			text = regexp.MustCompile(`(?m)^.*--match-set.*\n`).ReplaceAllString(text, "")
			run(t, text, "unshare", "-n", "iptables-restore", "--test")
		}
	})
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rulesOf returns a policy without its comments.
func rulesOf(policy []byte) string {
	lines := strings.Split(string(policy), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "#") || l == "" }), "\n")
}

// TestSameRuleset loads a ruleset into a kernel and imports it as it was written, as nft
// lists it, and as JSON: the policies are the same, and as much is left out.
func TestSameRuleset(t *testing.T) {
	file := filepath.Join("testdata", "nftables", "limits.nft")
	script := `PATH=$PATH:/usr/sbin:/sbin; nft -f ` + file + ` && nft list ruleset && echo ==== && nft -j list ruleset`
	listed, asJSON, ok := strings.Cut(run(t, "", "unshare", "-n", "sh", "-c", script), "====\n")
	if !ok {
		t.Fatal("nft printed nothing")
	}
	want := importFile(t, NFTables, file)
	for form, text := range map[string]string{"list": listed, "JSON": asJSON} {
		got, err := Import(form, []byte(text), Options{Made: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != NFTables || rulesOf(got.Policy) != rulesOf(want.Policy) {
			t.Errorf("of %s:\n%s\nwant:\n%s", form, rulesOf(got.Policy), rulesOf(want.Policy))
		}
		if len(got.Left) != len(want.Left) {
			t.Errorf("of %s these are left out: %v\nwant %v", form, got.Left, want.Left)
		}
	}
}

// TestPackaged imports the configurations that the peers' packages install.
func TestPackaged(t *testing.T) {
	result := importFile(t, Nginx, "/etc/nginx/nginx.conf")
	if err := wrong(result.Policy); err != nil {
		t.Error(err)
	}
	if want := `listen: "*:80"`; !strings.Contains(string(result.Policy), want) {
		t.Errorf("the site that nginx.conf includes is not found: there is no %s in\n%s", want, result.Policy)
	}
	// Examples come along, unless the system leaves documentation out. Most firewalls limit no
	// port, and have no service then.
	examples := 0
	for pattern, kind := range map[string]Kind{"nftables/examples/*.nft": NFTables, "haproxy/examples/*.cfg": HAProxy} {
		files, err := filepath.Glob("/usr/share/doc/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			result, err := Import(file, []byte(content(t, file)), Options{Kind: kind, Listen: []string{"*:80"}, Files: draft.Files{Base: filepath.Dir(file)}, Env: unset})
			if err != nil {
				t.Error(err)
			} else if err := wrong(result.Policy); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			examples++
		}
	}
	t.Logf("%d examples imported", examples)
	text := []byte(content(t, "/etc/haproxy/haproxy.cfg"))
	if kind := Guess(text); kind != HAProxy {
		t.Errorf("haproxy.cfg is taken for %q", kind)
	}
	if _, err := Import("haproxy.cfg", text, Options{Env: unset}); !errors.Is(err, draft.ErrNoService) {
		t.Errorf("a configuration without frontends: %v, want %v", err, draft.ErrNoService)
	}
}
