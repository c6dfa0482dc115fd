// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// calm is the time between two looks at the pods at the least.
const calm = 200 * time.Millisecond

// sight is what there is to follow.
type sight struct {
	targets []target
	// over is set when nothing more will come.
	over bool
}

// follow prints the logs of all containers, also of pods that come later and of containers that
// are started again, until nothing more comes. look is asked again after each change.
func (r *reader) follow(ctx context.Context, changed <-chan struct{}, look func(context.Context) (sight, error)) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reading := map[string]bool{}
	for first := true; ; first = false {
		s, err := look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range s.targets {
			t := &s.targets[i]
			if !t.started || reading[t.key()] {
				continue
			}
			reading[t.key()] = true
			group.Go(func() { r.followOne(ctx, t, first) })
		}
		if s.over {
			group.Wait()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// followOne prints the whole log of what came later: --tail and --since are for what was there.
func (r *reader) followOne(ctx context.Context, t *target, first bool) {
	options := r.options
	options.Follow = true
	if !first {
		options.TailLines, options.SinceSeconds = nil, nil
	}
	if err := r.read(ctx, t, options); err != nil && ctx.Err() == nil {
		fmt.Fprintln(r.errOut, "note:", err)
	}
}
