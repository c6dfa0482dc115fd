// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"k8s.io/apimachinery/pkg/types"
)

// forget drops all that is remembered of a TrainJob by its UID. Whatever is asked of one
// that is only over, not gone, is found out again.
func (e *environment) forget(uid types.UID) {
	e.Runtimes.Forget(uid)
	e.Remembered.Forget(uid)
	e.Recorder.Forget(uid)
	e.backoff.Forget(uid)
	e.inTree.Drop(uid)
	e.trainer.Drop(uid)
	e.trainer.Rollout.Drop(uid)
}
