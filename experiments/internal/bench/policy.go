// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"os"
	"path/filepath"

	"narthex/internal/lab"
)

// WritePolicy writes a policy into a folder that goes with the namespace.
func WritePolicy(ns *lab.Namespace, text string) (path string, err error) {
	dir, err := ns.TempDir("policy")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "policy.yaml")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Enforce starts narthex, as Start does, with the text of a policy.
func (b *Bench) Enforce(ctx context.Context, ns *lab.Namespace, text string, flags ...string) (*Narthex, error) {
	path, err := WritePolicy(ns, text)
	if err != nil {
		return nil, err
	}
	return b.Start(ctx, ns, path, flags...)
}
