// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// How long a new TrainJob stays out of its queue while what others make of it is not there: the manager waits, and the
// plugin tells.
const (
	// WaitForJobSet is how long a TrainJob waits for its JobSet, before it queues without, unless the
	// manager's configuration says otherwise.
	WaitForJobSet = 10 * time.Second

	// WaitForJobs is how long it waits for the child Jobs of that. Kueue orders a queue by when jobs
	// came to it, and JobSet takes long for many Jobs: waiting for all of them would have a
	// large job overtaken by the small ones after it.
	WaitForJobs = 2 * time.Second
)
