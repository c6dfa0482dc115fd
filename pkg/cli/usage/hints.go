// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// defaultGrace is what Kubernetes gives pods that ask for nothing.
const defaultGrace = 30

// Hint names a job that loses more at an eviction than its grace period lets it save.
type Hint struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Evictions int32  `json:"evictions"`
	// LostSeconds is what they cost, all together; at most so much where the job does not tell its progress.
	LostSeconds  int64 `json:"lostSeconds"`
	AtMost       bool  `json:"atMost,omitempty"`
	GraceSeconds int64 `json:"graceSeconds"`
}

// String is the hint in a sentence.
func (h Hint) String() string {
	lost, times := "lost about", show.Count(h.Evictions, "time")
	if h.AtMost {
		lost = "lost up to"
	}
	if h.Evictions == 1 {
		times = "once"
	}
	return fmt.Sprintf("TrainJob %s/%s was evicted %s and %s %s of its running time; its pods have a grace period of %s: write a checkpoint on TERM and give it time (docs/use.md#checkpoints-and-preemption)",
		h.Namespace, h.Name, times, lost,
		duration.HumanDuration(time.Duration(h.LostSeconds)*time.Second), time.Duration(h.GraceSeconds)*time.Second)
}

// hints returns those for the jobs that go on, who lost most first. One that has reached its time limit does not.
func hints(v *view, now time.Time) []Hint {
	var out []Hint
	for i := range v.workloads {
		wl := &v.workloads[i]
		if job := v.jobs[metav1.GetControllerOfNoCopy(wl).UID]; job != nil && !job.Finished() && kueuelib.OverTime(wl) == nil {
			if h, ok := hintOf(job, wl, now); ok {
				out = append(out, h)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Hint) int { return int(b.LostSeconds - a.LostSeconds) })
	return out
}

// hintOf compares how long a job has run with how far it came, which it tells where Trainer is 2.2
// or later and its container reports progress. Without that, all that ran before may be lost.
func hintOf(job *trainjob.TrainJob, wl *kueue.Workload, now time.Time) (Hint, bool) {
	former := int64(ptr.Deref(wl.Status.AccumulatedPastExecutionTimeSeconds, 0))
	h := Hint{Namespace: job.Namespace, Name: job.Name, Evictions: lostRuns(wl), LostSeconds: former, AtMost: true, GraceSeconds: graceOf(wl)}
	if done, known := doneSeconds(job); known {
		h.LostSeconds, h.AtMost = min(max(former+ranNow(wl, now)-done, 0), former), false
	}
	return h, h.Evictions > 0 && h.LostSeconds > int64(h.Evictions)*h.GraceSeconds
}

// doneSeconds returns how long what a job has done takes, as it reports.
func doneSeconds(job *trainjob.TrainJob) (int64, bool) {
	status := job.Status.TrainerStatus
	if status == nil || status.ProgressPercentage == nil || status.EstimatedRemainingSeconds == nil || *status.ProgressPercentage >= 100 {
		return 0, false
	}
	percent := int64(*status.ProgressPercentage)
	return int64(*status.EstimatedRemainingSeconds) * percent / (100 - percent), true
}

func ranNow(wl *kueue.Workload, now time.Time) int64 {
	if admitted := kueuelib.Since(wl.Status.Conditions, kueue.WorkloadAdmitted); !admitted.IsZero() {
		return int64(now.Sub(admitted).Seconds())
	}
	return 0
}

// graceOf returns the shortest grace period of a job's pods.
func graceOf(wl *kueue.Workload) int64 {
	least := int64(-1)
	for i := range wl.Spec.PodSets {
		grace := ptr.Deref(wl.Spec.PodSets[i].Template.Spec.TerminationGracePeriodSeconds, defaultGrace)
		if least < 0 || grace < least {
			least = grace
		}
	}
	return max(least, 0)
}

func lostRuns(wl *kueue.Workload) int32 {
	runs := int32(0)
	for _, e := range ptr.Deref(wl.Status.SchedulingStats, kueue.SchedulingStats{}).Evictions {
		runs += e.Count
	}
	return runs
}
