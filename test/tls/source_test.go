// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"testing"

	"narthex/test/source"
)

func TestSource(t *testing.T) {
	if err := source.Check(); err != nil {
		t.Error(err)
	}
}
