// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestLeaveAlone(t *testing.T) {
	labelled := time.Unix(2000, 0)
	type scene struct {
		job   *trainjob.TrainJob
		js    *jobsetapi.JobSet
		child *batchv1.Job
		wl    *kueue.Workload
		in    bool
	}
	runs := func(s *scene) { s.job.Spec.Suspend = ptr.To(false) }
	cases := map[string]struct {
		change func(*scene)
		alone  bool
		// asked is how often the API server is asked about the namespace.
		asked int
	}{
		"a job that waits in a namespace that is Kueue's": {change: func(s *scene) { s.in = true }},
		"one that runs there since before it was":         {change: func(s *scene) { s.in = true; runs(s) }, alone: true, asked: 1},
		"one that began later, without its webhook": {change: func(s *scene) {
			s.in = true
			runs(s)
			s.child.Status.StartTime = ptr.To(metav1.NewTime(labelled.Add(time.Second)))
		}, asked: 1},
		"one that was resumed since, and has not started": {change: func(s *scene) {
			s.in = true
			runs(s)
			s.child.Status.StartTime = nil
		}, asked: 1},
		"one that has more pods than its JobSet says": {change: func(s *scene) {
			s.in = true
			runs(s)
			s.child.Spec.Parallelism = ptr.To[int32](64)
		}, asked: 1},
		"one of which JobSet has yet to make a part": {change: func(s *scene) {
			s.in = true
			runs(s)
			s.js.Spec.ReplicatedJobs[0].Replicas = 2
		}, asked: 1},
		"one that was placed, and whose Workload is gone":       {change: func(s *scene) { s.in = true; runs(s); place(t, s.job, patch.Placement{Name: "node"}) }},
		"one without a queue, which is nobody's, costs no look": {change: func(s *scene) { s.in = true; runs(s); s.job.Labels = nil }},
		"a job elsewhere":               {change: runs, alone: true},
		"one that holds quota and runs": {change: func(s *scene) { runs(s); s.wl = inttest.WorkloadOf(s.job, inttest.Admitted) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &scene{}
			s.job, s.js = disagreeing(true, true, true, time.Now())
			s.js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 1}}
			s.child = doneJob(s.js)
			s.child.Labels[jobsetapi.ReplicatedJobNameKey] = "node"
			s.child.Status.StartTime = ptr.To(metav1.NewTime(labelled))
			tc.change(s)
			objects := []client.Object{s.job, s.js, s.child}
			if s.wl != nil {
				objects = append(objects, s.wl)
			}
			r, _ := newReconciler(t, objects...)
			asked := 0
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubectl-label", Time: ptr.To(metav1.NewTime(labelled)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{}}}}`)},
			}}}
			live := interceptor.NewClient(inttest.Fake().Build(), interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
					asked++
					namespace.DeepCopyInto(obj.(*corev1.Namespace))
					return nil
				},
			})
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			if s.in {
				selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}}
			}
			r.deps.queues = queues.New(r.deps.client, live, testenv.Kueue(func(settings *kueueconfig.Settings) { settings.ManagedJobsNamespaceSelector = selector }))
			j := expect.Must(r.deps.observe(t.Context(), jobKey))(t)
			expect.NoError(t, observeNamespace(t.Context(), j).err)
			got := leaveAlone(t.Context(), j)
			expect.NoError(t, got.err)
			expect.Same(t, "It is left alone", tc.alone, got.done)
			expect.Same(t, "Unexpected number of looks at the namespace", tc.asked, asked)
		})
	}
}

// How a job ended in a namespace that is not Kueue's says nothing of it once it is.
func TestEndIsNotRememberedOfAJobThatIsLeftAlone(t *testing.T) {
	stored, _ := disagreeing(false, false, false, time.Now())
	stored.Status.Conditions = append(stored.Status.Conditions, inttest.True(trainer.TrainJobFailed, ""))
	for _, managed := range []bool{true, false} {
		r, _ := newReconciler(t, stored.DeepCopy())
		selector := &metav1.LabelSelector{}
		if !managed {
			selector.MatchLabels = map[string]string{"team": "a"}
		}
		r.deps.queues = queues.New(r.deps.client, r.deps.live, testenv.Kueue(func(settings *kueueconfig.Settings) { settings.ManagedJobsNamespaceSelector = selector }))
		_, err := look(t, r, jobKey)
		expect.NoError(t, err)
		expect.Same(t, "Its end is remembered", managed, r.deps.records.of(jobKey, stored.UID).ended.condition.Type != "")
	}
}

// Between the two writes that free a job, its user may resume it: Trainer cannot take the gate from the JobSet then.
func TestResumedBeforeItWasFree(t *testing.T) {
	for name, tc := range map[string]struct {
		gate, entry, jobSetRuns bool
		want                    string
	}{
		"its JobSet keeps the gate, without our entry": {gate: true, want: "gone"},
		"its JobSet has none":                          {want: "suspended"},
		"our entry is there":                           {gate: true, entry: true, want: "suspended"},
		"its JobSet runs":                              {gate: true, jobSetRuns: true, want: "runs"},
	} {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(false, false, !tc.jobSetRuns, time.Now())
			js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 1}}
			if tc.gate {
				js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
			}
			if tc.entry {
				place(t, stored, patch.Gated("node"))
			}
			r, _ := newReconciler(t, stored, js)
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			r.deps.queues = queues.New(r.deps.client, r.deps.live, testenv.Kueue(func(settings *kueueconfig.Settings) { settings.ManagedJobsNamespaceSelector = selector }))
			_, err := look(t, r, jobKey)
			expect.NoError(t, err)
			expect.Same(t, "Unexpected JobSet", tc.want, jobSetState(t, r.deps.client, js))
		})
	}
}
