// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"

	"narthex/internal/api"
)

// Samples calls f with each sample of limits that set themselves, until ctx is done, the daemon
// ends, or f returns an error, which it returns.
func (n *Narthex) Samples(ctx context.Context, f func(api.Sample) error) error {
	return api.NewClient(n.socket).Samples(ctx, f)
}
