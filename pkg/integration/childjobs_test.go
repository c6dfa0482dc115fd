// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestHasPods(t *testing.T) {
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) []batchv1.JobCondition {
		return []batchv1.JobCondition{{Type: kind, Status: status}}
	}
	suspended := batchv1.JobSpec{Suspend: ptr.To(true)}
	cases := map[string]struct {
		job  batchv1.Job
		want bool
	}{
		"a Job that was made suspended and never looked at": {job: batchv1.Job{Spec: suspended}},
		"a Job that its controller knows to be suspended": {
			job: batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{Conditions: condition(batchv1.JobSuspended, corev1.ConditionTrue)}},
		},
		"a suspended Job whose controller last saw it resumed": {
			job:  batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{Conditions: condition(batchv1.JobSuspended, corev1.ConditionFalse)}},
			want: true,
		},
		"a suspended Job that ran from the beginning": {
			job:  batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{StartTime: ptr.To(metav1.Now())}},
			want: true,
		},
		"a suspended Job with a pod on its way out": {
			job: batchv1.Job{Spec: suspended, Status: batchv1.JobStatus{
				Terminating: ptr.To[int32](1), Conditions: condition(batchv1.JobSuspended, corev1.ConditionTrue)}},
			want: true,
		},
		"a Job that may run, without a pod yet": {want: true},
		"a Job that is done": {
			job: batchv1.Job{Status: batchv1.JobStatus{Conditions: condition(batchv1.JobComplete, corev1.ConditionTrue)}},
		},
		"a Job that failed, with a pod on its way out": {
			job: batchv1.Job{Status: batchv1.JobStatus{
				Terminating: ptr.To[int32](1), Conditions: condition(batchv1.JobFailed, corev1.ConditionTrue)}},
			want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := hasPods(tc.job); got != tc.want {
				t.Errorf("hasPods = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestOvertaken(t *testing.T) {
	entry := func(age time.Duration, placements ...patch.Placement) []trainjob.RuntimePatch {
		return entryAt(t, time.Now().Add(-age), placements...)
	}
	replicatedJob := func(name string, gates ...corev1.PodSchedulingGate) jobsetapi.ReplicatedJob {
		rj := jobsetapi.ReplicatedJob{Name: name}
		rj.Template.Spec.Template.Spec.SchedulingGates = gates
		return rj
	}
	ours := corev1.PodSchedulingGate{Name: patch.AdmissionGate}
	cases := map[string]struct {
		patches []trainjob.RuntimePatch
		jobs    []jobsetapi.ReplicatedJob
		want    bool
	}{
		"a job without our entry":                       {jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a placed job":                                  {patches: entry(0, patch.Placement{Name: "node"}), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a gate that Trainer has not passed on yet":     {patches: entry(0, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", corev1.PodSchedulingGate{Name: "other"})}, want: true},
		"a gate that Trainer could not pass on":         {patches: entry(time.Minute, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a gate that the JobSet holds":                  {patches: entry(0, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", ours)}},
		"a replicated job that came later to a runtime": {patches: entry(0, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", ours), replicatedJob("new")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: tc.jobs}}
			job := &trainjob.TrainJob{Spec: trainjob.Spec{Suspend: ptr.To(true), RuntimePatches: tc.patches}}
			env := &environment{Describer: &podsets.Describer{Field: patch.Of(trainjob.Trainer23)}, expectations: ledSince(time.Time{}), memory: &memory{}, starts: newStarts(time.Hour)}
			if got := env.mayStillResume(job, js) > 0; got != tc.want {
				t.Errorf("overtaken = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestActive(t *testing.T) {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}}
	jobSet := func(suspend bool, active int32) *jobsetapi.JobSet {
		return &jobsetapi.JobSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "js", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}},
			Spec:       jobsetapi.JobSetSpec{Suspend: ptr.To(suspend)},
			Status:     jobsetapi.JobSetStatus{ReplicatedJobsStatus: []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: active}}},
		}
	}
	tests := map[string]struct {
		jobSet *jobsetapi.JobSet
		want   bool
	}{
		"there is no JobSet":                     {},
		"a JobSet is suspended and without pods": {jobSet: jobSet(true, 0)},
		"a JobSet is not suspended yet":          {jobSet: jobSet(false, 0), want: true},
		"a JobSet has not heard of the last pod": {jobSet: jobSet(true, 1), want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			builder := inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(t)))
			if tc.jobSet != nil {
				builder = builder.WithObjects(tc.jobSet)
			}
			c := builder.Build()
			env := &environment{client: c, state: state.FromCache(c), Describer: &podsets.Describer{Field: patch.Of(trainjob.Trainer23)}, expectations: ledSince(time.Time{}), memory: &memory{}, starts: newStarts(time.Hour)}
			if got, err := env.active(t.Context(), job); err != nil || got != tc.want {
				t.Errorf("active() = %t, %v; want %t", got, err, tc.want)
			}
		})
	}
}

// The cache lacks most of what JobSet wrote on a Job; the write must not take it away.
func TestPlacingKeepsWhatTheCacheLacks(t *testing.T) {
	counted := map[string]string{"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-index": "0"}
	stored := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js-node-0", Annotations: counted}}
	stored.Spec.Template.Annotations = withKey(counted, "kueue.x-k8s.io/workload", "former")
	stored.Spec.Template.Labels = withKey(counted, "kueue.x-k8s.io/podset", "node")
	c := fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(stored).Build()
	cached, err := caches.TrimJob(stored.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "h100"}}}
	if err := (&environment{client: c, state: state.FromCache(c)}).placeChildJob(t.Context(), cached.(*batchv1.Job), want); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
		t.Fatal(err)
	}
	want.Labels, want.Annotations = counted, counted
	if diff := cmp.Diff(*want, stored.Spec.Template); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(counted, stored.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func withKey(of map[string]string, key, value string) map[string]string {
	all := maps.Clone(of)
	all[key] = value
	return all
}
