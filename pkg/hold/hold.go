// SPDX-License-Identifier: Apache-2.0

// Package hold knows how a TrainJob is kept out of its queue: its label names a LocalQueue that
// does not exist, the queue's own name with a suffix. That takes no more than the right to
// change TrainJobs, a job that is stopped so keeps its quota until its last pod is gone, and
// the way back stands in the name.
package hold

import "strings"

// suffix is part of no name that people give to a LocalQueue.
const suffix = ".held"

// FieldOwner is who changed the label, for those who look at managedFields: nothing else that
// the plugin writes has this owner.
const FieldOwner = "kubectl-trainjob-hold"

// Queue returns the name that keeps a TrainJob out of a queue.
func Queue(queue string) string { return queue + suffix }

// From returns the queue that a TrainJob is held out of, and whether it is.
func From(name string) (queue string, held bool) {
	queue, held = strings.CutSuffix(name, suffix)
	return queue, held && queue != ""
}
