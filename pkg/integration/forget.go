// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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

// forgetDeleted forgets TrainJobs as they go. Their name alone, which is all that a
// reconcile has then, does not tell the UID. It filters nothing.
func (e *environment) forgetDeleted() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(deleted event.DeleteEvent) bool {
		e.forget(deleted.Object.GetUID())
		return true
	}}
}
