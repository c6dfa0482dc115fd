// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// jobframework looks for a class that is new to a Workload before it does anything else.
func TestKeepPriority(t *testing.T) {
	tests := map[string]struct {
		named string
		// starts is set where the job waits, and its Workload is admitted.
		starts bool
		// charged is the class of the job's Workload; nil: it has none.
		charged  *string
		want     string
		wantTold string
	}{
		"a class that is there":                       {named: "there", charged: new("low"), want: "there"},
		"one that is not":                             {named: "gone", charged: new("low"), want: "low", wantTold: `PriorityClassMissing keeps the priority that it has, if any: workloadpriorityclasses.kueue.x-k8s.io "gone" not found`},
		"one that is not, of a job that starts":       {named: "gone", charged: new("low"), starts: true, want: "gone"},
		"one that was deleted since":                  {named: "gone", charged: new("gone"), want: "gone"},
		"one that is not, of a job without":           {named: "gone", charged: new(""), wantTold: "PriorityClassMissing"},
		"one that is not, of a job without Workload":  {named: "gone", want: "gone"},
		"no class at all, where the Workload has one": {charged: new("low")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(tc.starts, false, false, time.Now())
			if tc.named != "" {
				stored.Labels[kit.PriorityLabel] = tc.named
			}
			objects := []client.Object{stored, kit.Priority("there", 1)}
			if tc.charged != nil {
				wl := inttest.WorkloadOf(stored, kit.Admitted)
				if *tc.charged != "" {
					wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(*tc.charged)
				}
				objects = append(objects, wl)
			}
			r, recorder := newReconciler(t, objects...)
			j := jobOf(t, r, stored.DeepCopy())
			expect.NoError(t, keepPriority(t.Context(), j).err)
			expect.Same(t, "jobframework sees another class", tc.want, j.Labels[kit.PriorityLabel])
			expect.Same(t, "The TrainJob is written", tc.named, storedJob(t, r).Labels[kit.PriorityLabel])
			wantTold(t, eventsSoFar(recorder, "Warning"), tc.wantTold)
		})
	}
}

// Kueue orders its queue by the Workload, not by the pods.
func TestTakePodSets(t *testing.T) {
	low, high, kueues := kueue.NewPodPriorityClassRef("low"), kueue.NewPodPriorityClassRef("high"), kueue.NewWorkloadPriorityClassRef("there")
	tests := map[string]struct {
		// former is the class of the pods that the Workload has, and now that of those that it gets.
		former, now  string
		ref          *kueue.PriorityClassRef
		priority     int32
		labeled      bool
		wantRef      *kueue.PriorityClassRef
		wantPriority int32
		wantErr      bool
	}{
		"another class":                      {former: "low", now: "high", ref: low, priority: 1, wantRef: high, wantPriority: 9},
		"a first class":                      {now: "high", wantRef: high, wantPriority: 9},
		"no class any more":                  {former: "high", ref: high, priority: 9},
		"a class that is not there":          {former: "low", now: "gone", ref: low, priority: 1, wantErr: true},
		"a former class that is not there":   {former: "gone", now: "high", ref: low, priority: 1, wantRef: low, wantPriority: 1},
		"the same class, of another value":   {former: "high", now: "high", ref: high, priority: 5, wantRef: high, wantPriority: 5},
		"what an admin has set":              {former: "low", now: "high", ref: low, priority: 7, wantRef: low, wantPriority: 7},
		"a WorkloadPriorityClass of its own": {former: "low", now: "high", ref: kueues, priority: 3, wantRef: kueues, wantPriority: 3},
		"a label that is not followed yet":   {former: "low", now: "high", ref: low, priority: 1, labeled: true, wantRef: low, wantPriority: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			of := func(class string) []kueue.PodSet {
				ps := kueue.PodSet{Name: "node", Count: 1}
				ps.Template.Spec.PriorityClassName = class
				return []kueue.PodSet{ps}
			}
			stored, _ := disagreeing(true, false, false, time.Now())
			if tc.labeled {
				stored.Labels[kit.PriorityLabel] = "there"
			}
			r, _ := newReconciler(t, stored, kit.Priority("there", 3),
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: 1},
				&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 9})
			wl := inttest.WorkloadOf(stored)
			wl.Spec.PodSets, wl.Spec.PriorityClassRef, wl.Spec.Priority = of(tc.former), tc.ref, &tc.priority
			err := setPodSets(t.Context(), jobOf(t, r, stored), wl, of(tc.now))
			expect.That(t, (err != nil) == tc.wantErr, "setPodSets() = %v", err)
			if !tc.wantErr {
				expect.Same(t, "Unexpected class", tc.wantRef, wl.Spec.PriorityClassRef)
				expect.Same(t, "Unexpected priority", tc.wantPriority, ptr.Deref(wl.Spec.Priority, 0))
			}
			expect.Same(t, "Unexpected PodSets", of(tc.now), wl.Spec.PodSets)
		})
	}
}
