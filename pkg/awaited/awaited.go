// SPDX-License-Identifier: Apache-2.0

// Package awaited says how long a new TrainJob stays out of its queue while what others make of
// it is not there, for the manager, which waits, and for the plugin, which tells.
package awaited

import "time"

const (
	// JobSet is how long a TrainJob waits for its JobSet, before it queues without, unless the
	// manager's configuration says otherwise.
	JobSet = 10 * time.Second

	// Jobs is how long it waits for the child Jobs of that. Kueue orders a queue by when jobs
	// came to it, and JobSet takes long for many Jobs: waiting for all of them would have a
	// large job overtaken by the small ones after it.
	Jobs = 2 * time.Second
)
