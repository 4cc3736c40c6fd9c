// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"narthex/test/nettest"
)

// manifest decodes the manifest as strictly as an API server with strict validation does: keys
// that there are not are errors.
func manifest(t *testing.T) (c core.ConfigMap, d apps.DaemonSet) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "packaging/kubernetes/narthex.yaml"))
	nettest.Check(t, err)
	into := map[string]any{"Namespace": &core.Namespace{}, "ConfigMap": &c, "DaemonSet": &d}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != len(into) {
		t.Fatalf("%d documents", len(documents))
	}
	for _, document := range documents {
		var kind struct{ Kind string }
		nettest.Check(t, yaml.Unmarshal(document, &kind))
		if into[kind.Kind] == nil {
			t.Fatalf("unexpected kind %q", kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, into[kind.Kind]); err != nil {
			t.Errorf("%s: %v", kind.Kind, err)
		}
	}
	return c, d
}

func TestManifest(t *testing.T) {
	t.Parallel()
	c, d := manifest(t)
	pod := d.Spec.Template.Spec
	if diff := cmp.Diff(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels); diff != "" {
		t.Errorf("the selector does not match the pods (-want +got):\n%s", diff)
	}
	if !pod.HostNetwork || len(pod.Containers) != 1 {
		t.Fatalf("host network %v, %d containers", pod.HostNetwork, len(pod.Containers))
	}
	narthex := pod.Containers[0]
	security := narthex.SecurityContext
	if *security.Privileged || *security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem {
		t.Errorf("too much is allowed: %+v", security)
	}
	var added []string
	for _, capability := range security.Capabilities.Add {
		added = append(added, strings.ToLower(string(capability)))
	}
	slices.Sort(added)
	if diff := cmp.Diff(needed, added); diff != "" || !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}) {
		t.Errorf("capabilities, of which %v are dropped (-want +got):\n%s", security.Capabilities.Drop, diff)
	}
	for _, m := range narthex.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("volume %q is not declared", m.Name)
		}
	}
	policy := write(t, filepath.Join(t.TempDir(), "policy.yaml"), c.Data["policy.yaml"])
	output(t, binary, "check", policy)
	// The command line is one: of a policy that is not there it says so.
	refusesFile(t, append(slices.Clone(narthex.Args), "--policy", "/nonexistent/policy.yaml"))
}
