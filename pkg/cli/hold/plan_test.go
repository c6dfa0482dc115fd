// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// waits is a job in a queue.
func waits(queue string, changes ...func(*view)) *view {
	v := &view{workload: &kueue.Workload{}, job: &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm"}}}
	v.job.Spec.Suspend = ptr.To(true)
	v.job.Labels = map[string]string{kueueconstants.QueueLabel: queue}
	return kit.With(v, changes...)
}

func hasQuota(v *view) {
	v.workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
}

func runs(v *view) {
	hasQuota(v)
	v.job.Spec.Suspend = nil
}

func deactivated(v *view) { v.workload.Spec.Active = ptr.To(false) }

func deactivatedByKueue(v *view) {
	deactivated(v)
	v.workload.Name = "wl"
	v.workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "DeactivatedDueToMaximumExecutionTimeExceeded"}}
}

func toBeDeactivated(v *view) { deactivation.Mark(v.workload) }

func toBeDeactivatedByKueue(v *view) {
	v.workload.Status.Conditions = append(v.workload.Status.Conditions, metav1.Condition{Type: kueue.WorkloadDeactivationTarget, Status: metav1.ConditionTrue})
}

func unseen(v *view) { v.workload, v.unseen = nil, true }

func TestPlans(t *testing.T) {
	type row struct {
		plan func(*view) (change, error)
		view *view
		want change
		// err is part of the error.
		err string
	}
	expect.Rows(t, map[string]row{
		"hold a job that waits":             {plan: (*view).hold, view: waits("gpus"), want: change{queue: "gpus.held"}},
		"hold one that is held":             {plan: (*view).hold, view: waits("gpus.held"), err: "is held already"},
		"hold one that runs":                {plan: (*view).hold, view: waits("gpus", runs), err: "kubectl trainjob stop -n team llm"},
		"hold one that stops":               {plan: (*view).hold, view: waits("gpus.held", hasQuota), err: "is being stopped, and held then"},
		"hold one that is held and runs":    {plan: (*view).hold, view: waits("gpus.held", runs), err: "kubectl trainjob stop"},
		"hold one that has quota":           {plan: (*view).hold, view: waits("gpus", hasQuota), err: "kubectl trainjob stop"},
		"hold with a queue of a long name":  {plan: (*view).hold, view: waits(strings.Repeat("q", 60)), err: "too long"},
		"stop one that runs":                {plan: (*view).stop, view: waits("gpus", runs), want: change{queue: "gpus.held", suspend: true}},
		"stop one that is to start":         {plan: (*view).stop, view: waits("gpus", hasQuota), want: change{queue: "gpus.held", suspend: true}},
		"stop one that waits":               {plan: (*view).stop, view: waits("gpus"), want: change{queue: "gpus.held"}},
		"stop without a view of Workloads":  {plan: (*view).stop, view: waits("gpus", runs, unseen), want: change{queue: "gpus.held", suspend: true}},
		"stop one that stops":               {plan: (*view).stop, view: waits("gpus.held", hasQuota), err: "is stopped already"},
		"stop one that is held and runs":    {plan: (*view).stop, view: waits("gpus.held", runs), want: change{queue: "gpus.held", suspend: true}},
		"resume one that is held":           {plan: (*view).resume, view: waits("gpus.held"), want: change{queue: "gpus"}},
		"resume one that stops":             {plan: (*view).resume, view: waits("gpus.held", hasQuota), want: change{await: true}},
		"resume one that is held and runs":  {plan: (*view).resume, view: waits("gpus.held", runs), err: "kubectl trainjob stop -n team llm"},
		"resume without Workloads":          {plan: (*view).resume, view: waits("gpus.held", unseen), want: change{queue: "gpus"}},
		"resume one that is deactivated":    {plan: (*view).resume, view: waits("gpus", deactivated), want: change{activate: true}},
		"resume one that is both":           {plan: (*view).resume, view: waits("gpus.held", deactivated), want: change{queue: "gpus", activate: true}},
		"resume one that is evicted":        {plan: (*view).resume, view: waits("gpus", hasQuota, deactivated), want: change{await: true}},
		"resume one that is to be":          {plan: (*view).resume, view: waits("gpus", runs, toBeDeactivated), want: change{await: true}},
		"resume one that Kueue is to take":  {plan: (*view).resume, view: waits("gpus", runs, toBeDeactivatedByKueue), err: "delete workload"},
		"resume one that Kueue took out":    {plan: (*view).resume, view: waits("gpus", deactivatedByKueue), err: "delete workload wl"},
		"resume a held one that Kueue took": {plan: (*view).resume, view: waits("gpus.held", deactivatedByKueue), want: change{queue: "gpus"}},
		"resume a held one that it stops":   {plan: (*view).resume, view: waits("gpus.held", hasQuota, toBeDeactivatedByKueue), want: change{await: true}},
		"resume one that waits":             {plan: (*view).resume, view: waits("gpus"), err: "it waits"},
		"resume one that runs":              {plan: (*view).resume, view: waits("gpus", runs), err: "it has its quota"},
		"requeue one that runs":             {plan: (*view).requeue, view: waits("gpus", runs), want: change{queue: "gpus.held", suspend: true}},
		"requeue one that waits":            {plan: (*view).requeue, view: waits("gpus"), err: "waits in its queue already"},
		"requeue one that is deactivated":   {plan: (*view).requeue, view: waits("gpus", deactivated), err: "kubectl trainjob resume -n team llm"},
		"requeue one that is to be":         {plan: (*view).requeue, view: waits("gpus", runs, toBeDeactivated), err: "is deactivated, or about to be"},
		"requeue one that Kueue will take":  {plan: (*view).requeue, view: waits("gpus", runs, toBeDeactivatedByKueue), err: "Kueue itself deactivated"},
		"requeue one that Kueue took out":   {plan: (*view).requeue, view: waits("gpus", deactivatedByKueue), err: "delete workload wl"},
		"requeue one that is held":          {plan: (*view).requeue, view: waits("gpus.held"), err: "resume"},
		"requeue one that is held, runs":    {plan: (*view).requeue, view: waits("gpus.held", runs), want: change{queue: "gpus.held", suspend: true}},
		"requeue without Workloads":         {plan: (*view).requeue, view: waits("gpus", runs, unseen), err: "permission to list Workloads"},
	}, func(t *testing.T, tc row) {
		got, err := tc.plan(tc.view)
		expect.Same(t, "Unexpected change", tc.want, got, cmp.AllowUnexported(change{}))
		expect.Says(t, err, tc.err)
	})
}

func TestMovable(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*view), string]{
		"one in a queue":               {In: func(*view) {}},
		"one that is deleted":          {In: func(v *view) { v.job.DeletionTimestamp = ptr.To(metav1.Now()) }, Want: "is being deleted"},
		"one without a queue":          {In: func(v *view) { v.job.Labels = nil }, Want: "set spec.suspend yourself"},
		"one of another cluster":       {In: func(v *view) { v.job.Spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") }, Want: "spec.managedBy"},
		"one with a prebuilt Workload": {In: func(v *view) { v.job.Labels[kueueconstants.PrebuiltWorkloadLabel] = "wl" }, Want: "the prebuilt Workload wl"},
		"one whose prebuilt Workload is in an annotation": {In: func(v *view) {
			v.job.Annotations = map[string]string{kueueconstants.PrebuiltWorkloadAnnotation: "wl"}
		}, Want: "the prebuilt Workload wl"},
		"one that MultiKueue sent": {In: func(v *view) {
			v.job.Labels[kueue.MultiKueueOriginLabel], v.workload.Labels = "far", map[string]string{kueue.MultiKueueOriginLabel: "far"}
		}, Want: "sent here by MultiKueue"},
		"one that only says so": {In: func(v *view) { v.job.Labels[kueue.MultiKueueOriginLabel] = "far" }},
		"one that has ended": {In: func(v *view) {
			v.job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobFailed, Status: metav1.ConditionTrue}}
		}, Want: "has ended"},
	}, func(t *testing.T, tc expect.Row[func(*view), string]) {
		expect.Says(t, waits("gpus", tc.In).movable(), tc.Want)
	})
}

func TestToldBack(t *testing.T) {
	c := change{queue: "gpus"}
	expect.Same(t, "Unexpected words", "queued again in gpus", toldBack(waits("gpus.held"), c))
	got, want := toldBack(waits("gpus.held", unseen), c), "it may start again on the quota that it had"
	expect.That(t, strings.Contains(got, want), "Unexpected words %q, want %q in them", got, want)
}
