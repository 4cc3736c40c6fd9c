// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"narthex/test/twin"
)

func testArena(t testing.TB) *arena {
	t.Helper()
	return newArena(twin.Guarded(t, chunkRoom))
}
