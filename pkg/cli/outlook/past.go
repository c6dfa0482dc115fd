// SPDX-License-Identifier: Apache-2.0

package outlook

import (
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// past is how long the Workloads ran that the cluster still has, and how long those have that run.
func (o *Outlook) past(jobs byUID) []forecast.Past {
	var all []forecast.Past
	oldest := o.oldestEnd()
	for n := range o.Workloads {
		wl := &o.Workloads[n]
		s := o.subject(wl, jobs)
		p := forecast.Past{Traits: s.Traits, Limit: s.Limit, Submitted: s.Submitted, Job: s.Job}
		var since time.Time
		if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
			since = admitted.LastTransitionTime.Time
		}
		stopped := overTime(wl)
		switch ran, ended := kueuelib.RanFor(wl); {
		case ended:
			p.Ran = forecast.Ran{For: ran, Ended: true}
		case kueuelib.IsFinished(wl):
			continue
		case stopped != nil: // It was stopped, and would have run longer.
			p.Ran = forecast.Ran{For: s.Limit}
			since = stopped.LastTransitionTime.Add(-s.Limit)
		case !kueuelib.IsAdmitted(wl):
			continue
		default:
			p.Ran = forecast.Ran{For: s.Running}
		}
		p.Seen = max(0, oldest.Sub(since)-time.Second)
		all = append(all, p)
	}
	return all
}

// overTime is how Kueue has stopped a Workload that reached its limit; nil where it has not.
func overTime(wl *kueue.Workload) *metav1.Condition {
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	if wl.Spec.MaximumExecutionTimeSeconds == nil || evicted == nil || evicted.Status != metav1.ConditionTrue || !strings.HasSuffix(evicted.Reason, kueue.WorkloadMaximumExecutionTimeExceeded) {
		return nil
	}
	return evicted
}

// oldestEnd is before which no ends are known: Workloads that have ended are kept for some time only.
func (o *Outlook) oldestEnd() time.Time {
	oldest := o.Now
	for n := range o.Workloads {
		if wl := &o.Workloads[n]; kueuelib.IsFinished(wl) {
			if finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); finished.LastTransitionTime.Time.Before(oldest) {
				oldest = finished.LastTransitionTime.Time
			}
		}
	}
	return oldest
}

// complete is for how long all are known who came: since the oldest end that is known, or since the first came where none
// has ended. An hour is the least, or a few would be a flood.
func (o *Outlook) complete() time.Duration {
	since := o.oldestEnd()
	if !since.Before(o.Now) {
		for n := range o.Workloads {
			if created := o.Workloads[n].CreationTimestamp.Time; created.Before(since) {
				since = created
			}
		}
	}
	return min(recent, max(time.Hour, o.Now.Sub(since)))
}
