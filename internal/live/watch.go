// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"

	"narthex/internal/api"
)

// Watch calls tell with a view about once a second, from the present one on, until tell
// returns an error, the context is done or the daemon ends, which is api.ErrEventsEnded. It
// calls began when the daemon answers.
func Watch(ctx context.Context, c *api.Client, began func(), tell func(View) error) error {
	return api.Follow(ctx, c, api.PathLive, began, tell)
}

// errOne ends watching with the first view.
var errOne = errors.New("one view")

// Once returns one view that has rates.
func Once(ctx context.Context, c *api.Client) (one View, err error) {
	err = api.Follow(ctx, c, api.PathLive+"?once=1", func() {}, func(v View) error {
		one = v
		return errOne
	})
	if errors.Is(err, errOne) {
		err = nil
	}
	return one, err
}
