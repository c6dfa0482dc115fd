// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// TimeLimit is how long Kueue lets a TrainJob run, by label
// kueue.x-k8s.io/max-exec-time-seconds.
type TimeLimit struct {
	Seconds int32 `json:"seconds"`
	// UsedSeconds is the time for which it was admitted until now.
	UsedSeconds int32 `json:"usedSeconds"`
}

// timeLimitOf counts as Kueue does: all admissions of the Workload, and no time in the queue.
func timeLimitOf(f *Facts) *TimeLimit {
	if f.Workload == nil || f.Workload.Spec.MaximumExecutionTimeSeconds == nil || kueuelib.IsFinished(f.Workload) {
		return nil
	}
	l := &TimeLimit{Seconds: *f.Workload.Spec.MaximumExecutionTimeSeconds}
	l.UsedSeconds = ptr.Deref(f.Workload.Status.AccumulatedPastExecutionTimeSeconds, 0)
	if c := f.condition(kueue.WorkloadAdmitted); c != nil {
		l.UsedSeconds += int32(f.Now.Sub(c.LastTransitionTime.Time).Seconds())
	}
	return l
}
