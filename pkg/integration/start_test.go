// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func child(replicatedJob string, n int32, status batchv1.JobStatus, changes ...func(*batchv1.Job)) batchv1.Job {
	name := "job-" + replicatedJob + "-0"
	return *kit.With(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{jobsetapi.ReplicatedJobNameKey: replicatedJob}},
		Spec:       batchv1.JobSpec{Parallelism: new(n), Completions: new(n)},
		Status:     status,
	}, changes...)
}

func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }
func exclusive(job *batchv1.Job) {
	job.Spec.Template.Annotations = map[string]string{jobsetapi.ExclusiveKey: "rack"}
}
func selecting(job *batchv1.Job) {
	job.Spec.Template.Annotations[jobsetapi.NodeSelectorStrategyKey] = "rack"
}

func TestLackOf(t *testing.T) {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "trainjob"}}
	complete := batchv1.JobStatus{Succeeded: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
	failed := batchv1.JobStatus{Failed: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}
	plain, both := kit.ReplicatedJobs("node", 1), slices.Concat(kit.ReplicatedJobs("first", 1), kit.ReplicatedJobs("node", 1))
	inOrder := func(js *jobsetapi.JobSet) {
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
	}
	staged := []jobsetapi.ReplicatedJob{{Name: "download", Replicas: 1}, {Name: "node", Replicas: 1,
		DependsOn: []jobsetapi.DependsOn{{Name: "download", Status: jobsetapi.DependencyComplete}}}}
	byTrainer := func(what string) *lack { return &lack{what: what, kind: "TrainJob", asked: []types.UID{"trainjob"}} }
	byJobSet := func(what string) *lack { return &lack{what: what, kind: "JobSet", asked: []types.UID{"js"}} }
	type row struct {
		replicated []jobsetapi.ReplicatedJob
		none       bool
		change     func(*jobsetapi.JobSet)
		jobs       []batchv1.Job
		want       *lack
	}
	expect.Rows(t, map[string]row{
		"no JobSet":          {none: true, want: byTrainer("Trainer has not made JobSet job")},
		"a suspended JobSet": {change: func(js *jobsetapi.JobSet) { js.Spec.Suspend = new(true) }, want: byTrainer("Trainer has not resumed JobSet job")},
		"a JobSet that goes": {change: func(js *jobsetapi.JobSet) { js.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, want: byTrainer("JobSet job is still being deleted")},
		"a finished JobSet":  {change: func(js *jobsetapi.JobSet) { js.Status.TerminalState = string(jobsetapi.JobSetFailed) }},
		"no child Job":       {want: byJobSet("JobSet has not made 1 of 1 child Job of replicated job node")},
		"a suspended child":  {jobs: []batchv1.Job{child("node", 1, batchv1.JobStatus{}, suspended)}, want: byJobSet("JobSet has not resumed child Job job-node-0")},
		"no pod":             {jobs: []batchv1.Job{child("node", 2, batchv1.JobStatus{})}, want: &lack{what: "the Job controller has not made 2 of 2 pods of child Job job-node-0", kind: "Job", asked: []types.UID{"job-node-0"}, missing: 2}},
		"some pods":          {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 3})}, want: &lack{what: "the Job controller has not made 1 of 4 pods of child Job job-node-0", kind: "Job", asked: []types.UID{"job-node-0"}, missing: 1, live: true, pods: true}},
		"the others wait for the first to be scheduled": {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 1}, exclusive)}},
		"the first itself is missing": {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{}, exclusive)},
			want: &lack{what: "the Job controller has not made 4 of 4 pods of child Job job-node-0", kind: "Job", asked: []types.UID{"job-node-0"}, missing: 4}},
		"none waits where nodes are labeled": {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 1}, exclusive, selecting)},
			want: &lack{what: "the Job controller has not made 3 of 4 pods of child Job job-node-0", kind: "Job", asked: []types.UID{"job-node-0"}, missing: 3, live: true, pods: true}},
		"all pods": {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 4})}},
		"all pods, and some are on their way out": {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 2, Terminating: new(int32(2))})}},
		"a pod failed and others run":             {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 3, Failed: 1})}},
		"the last pods of many":                   {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 1, Succeeded: 3})}},
		"the only pod failed, and comes again": {jobs: []batchv1.Job{child("node", 1, batchv1.JobStatus{Failed: 1})},
			want: &lack{what: "the Job controller has not made 1 of 1 pod of child Job job-node-0", kind: "Job", asked: []types.UID{"job-node-0"}, missing: 1, pods: true, made: true}},
		"a Job of no pods":                   {jobs: []batchv1.Job{child("node", 0, batchv1.JobStatus{})}},
		"a stage whose turn has not come":    {replicated: staged, jobs: []batchv1.Job{child("download", 1, batchv1.JobStatus{Active: 1})}},
		"a stage whose turn has come":        {replicated: staged, jobs: []batchv1.Job{child("download", 1, complete)}, want: byJobSet("JobSet has not made 1 of 1 child Job of replicated job node")},
		"a stage after one that failed":      {replicated: staged, jobs: []batchv1.Job{child("download", 1, failed)}},
		"a Job that ended as it was stopped": {jobs: []batchv1.Job{child("node", 1, complete, suspended)}},
		"no pod of two Jobs": {replicated: both, jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{}), child("node", 1, batchv1.JobStatus{})},
			want: &lack{what: "the Job controller has not made 1 of 1 pod of child Job job-first-0", kind: "Job", asked: []types.UID{"job-first-0", "job-node-0"}, missing: 2}},
		"no pod beside a Job that failed for good": {replicated: both, jobs: []batchv1.Job{child("first", 1, failed), child("node", 1, batchv1.JobStatus{})},
			want: &lack{what: "the Job controller has not made 1 of 1 pod of child Job job-node-0", kind: "Job", asked: []types.UID{"job-node-0"}, missing: 1}},
		"a pod failed, and another Job is done": {replicated: both, jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{Failed: 1}), child("node", 1, batchv1.JobStatus{Succeeded: 1})},
			want: &lack{what: "the Job controller has not made 1 of 1 pod of child Job job-first-0", kind: "Job", asked: []types.UID{"job-first-0"}, missing: 1, pods: true, made: true}},
		"a later stage in order, after one that is ready": {replicated: both, change: inOrder, want: &lack{what: "JobSet has not resumed child Job job-node-0", kind: "JobSet", asked: []types.UID{"js"}, live: true, pods: true},
			jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{Active: 1, Ready: new(int32(1))}), child("node", 1, batchv1.JobStatus{}, suspended)}},
		"a later stage in order": {replicated: both, change: inOrder, jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{Active: 1}), child("node", 1, batchv1.JobStatus{}, suspended)}},
	}, func(t *testing.T, tc row) {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "js"}}
		if js.Spec.ReplicatedJobs = tc.replicated; tc.replicated == nil {
			js.Spec.ReplicatedJobs = plain
		}
		kit.With(js, tc.change)
		if tc.none {
			js = nil
		}
		expect.Same(t, "Unexpected lack", tc.want, lackOf(job, js, tc.jobs), cmp.AllowUnexported(lack{}))
	})
}

func TestHoldBackCountsFromTheEndOfTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		field := patch.Of(trainjob.Trainer23)
		job, s := inttest.Job("uid"), &startRecord{}
		s.quotaGoes("wl")
		expect.Same(t, "Unexpected wait of a job that was evicted", 0, s.heldBack(job, field))
		s.holdBack("wl", sumOf(job, field), defaultStartTimeout)
		// Its last pod takes longer to end than the job is held back.
		time.Sleep(10 * time.Minute)
		s.quotaGoes("wl")
		expect.Same(t, "Unexpected time that it is held back after its quota was given back", time.Minute, s.heldBack(job, field))
		time.Sleep(time.Minute)
		s.quotaGoes("admitted again")
		expect.Same(t, "Unexpected wait of a job that was preempted before it started", 0, s.heldBack(job, field))
	})
}

// Kueue admits the same Workload again: what it lacked before counts no more, nor that it was complete.
func TestLacksBeginsWithEachAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first, second := &startRecord{}, admission{"wl", 1}, admission{"wl", 2}
		s.lacks(first, time.Minute, 0)
		time.Sleep(time.Hour)
		lacking, wait, complete := s.lacks(first, time.Minute, 0)
		expect.That(t, lacking == time.Hour && wait == 0 && !complete, "In the first admission: lacking %s, wait %s, complete %t", lacking, wait, complete)
		lacking, wait, _ = s.lacks(second, time.Minute, 0)
		expect.That(t, lacking == 0 && wait == time.Minute, "In the second one: lacking %s, wait %s", lacking, wait)
		s.lacksNothing(second)
		_, _, complete = s.lacks(second, time.Minute, 0)
		expect.That(t, complete, "That it was complete is forgotten")
		_, _, complete = s.lacks(admission{"wl", 3}, time.Minute, 0)
		expect.That(t, !complete, "It is complete before it has started again")
	})
}

// The Job controller makes pods one by one, also when JobSet has made the Jobs again.
func TestLacksBeginsAnewWithFewerPodsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &startRecord{}
		for _, look := range []struct {
			missing int32
			want    time.Duration
		}{{10, 0}, {3, 0}, {4, time.Minute}, {3, 2 * time.Minute}, {0, 3 * time.Minute}, {10, 4 * time.Minute}, {9, 0}} {
			lacking, _, _ := s.lacks(admission{"wl", 1}, time.Hour, look.missing)
			expect.Same(t, fmt.Sprintf("Unexpected time without %d pods", look.missing), look.want, lacking)
			time.Sleep(time.Minute)
		}
	})
}

func TestHoldBack(t *testing.T) {
	field := patch.Of(trainjob.Trainer23)
	job, s := inttest.Job("uid"), &startRecord{}
	expect.Same(t, "Unexpected wait of a job that never started", 0, s.heldBack(job, field))
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		expect.Same(t, fmt.Sprintf("%d: unexpected time that it is held back", i), want, s.holdBack("wl", sumOf(job, field), defaultStartTimeout))
	}
	for range 10 {
		s.holdBack("wl", sumOf(job, field), defaultStartTimeout)
	}
	wait := s.heldBack(job, field)
	expect.That(t, wait <= time.Hour && wait >= 59*time.Minute, "held back for %s, want an hour at the most", wait)
	ours := *job.DeepCopy()
	place(t, &ours, patch.Gated("node"))
	ours.Spec.Suspend = new(true)
	expect.That(t, s.heldBack(&ours, field) != 0, "Our own write frees the job")
	changed := *job.DeepCopy()
	changed.Annotations = map[string]string{"try": "again"}
	expect.Same(t, "Unexpected wait of a changed job", 0, s.heldBack(&changed, field))
	moved := *job.DeepCopy()
	moved.Labels = map[string]string{kit.QueueLabel: "another"}
	expect.Same(t, "Unexpected wait of a job that got another queue", 0, s.heldBack(&moved, field))
	expect.Same(t, "Unexpected time that a changed job is held back", time.Minute, s.holdBack("wl", sumOf(&changed, field), defaultStartTimeout))
	s.lacksNothing(admission{workload: "wl"})
	expect.Same(t, "Unexpected time that a job is held back that has started since", time.Minute, s.holdBack("wl", sumOf(&changed, field), defaultStartTimeout))
}

func TestPlacedMessage(t *testing.T) {
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "dataset-initializer", Count: new(int32(1))},
		{Name: "node", Count: new(int32(2)), ResourceUsage: kit.Amounts("cpu", "8", "memory", "64Gi", "nvidia.com/gpu", "16"),
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "cpus", "memory": "cpus", "nvidia.com/gpu": "h100"}},
	}}
	want := "Admitted from queue team by ClusterQueue gpus: dataset-initializer 1 pod on no flavor, it requests nothing; " +
		"node 2 pods on flavor cpus (64Gi memory, 8 cpu), flavor h100 (16 nvidia.com/gpu)"
	expect.Same(t, "Unexpected message", want, placedMessage(wl))
}

func TestAwaitTrainer(t *testing.T) {
	type row struct {
		// suspended: the TrainJob, what Trainer says of it, the JobSet.
		job, said, jobSet bool
		// written is how long ago the TrainJob was.
		written time.Duration
		// begun is set where a start is under way that was taken back.
		begun bool
		// changed is set where it is seen to be changed just now.
		changed  bool
		change   func(*trainjob.TrainJob)
		wantWait bool
		wantTold string
	}
	expect.Rows(t, map[string]row{
		"Trainer has heard":                         {job: true, said: true, jobSet: true, written: time.Hour},
		"what it heard is for somebody else":        {job: true, said: true, jobSet: false, written: time.Hour},
		"a stop just now":                           {job: true, said: false, jobSet: false, wantWait: true},
		"a stop that Trainer may still undo":        {job: true, said: true, jobSet: true, written: time.Hour, begun: true, wantWait: true},
		"a stop long ago":                           {job: true, said: false, jobSet: false, written: time.Hour, wantWait: true, wantTold: "still runs"},
		"a stop by somebody else just now":          {job: true, said: false, jobSet: false, written: time.Hour, changed: true, wantWait: true},
		"a start just now":                          {job: false, said: true, jobSet: true, wantWait: true},
		"a start long ago":                          {job: false, said: true, jobSet: true, written: time.Hour, wantWait: true, wantTold: "is still suspended"},
		"a start that the JobSet shows already":     {job: false, said: true, jobSet: false, written: time.Hour},
		"a job that is not Kueue's":                 {job: true, said: false, jobSet: false, written: time.Hour, change: withoutQueue},
		"a stop that the JobSet shows, with a gate": {job: true, said: false, jobSet: true, written: time.Hour},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(tc.job, tc.said, tc.jobSet, time.Now())
		r, recorder := newReconciler(t, kit.With(stored, tc.change), js)
		r.deps.expectations = testenv.LedSince(time.Now().Add(-tc.written))
		if tc.begun {
			r.deps.expectations.ExpectResume(stored)
			stored.Generation++
		}
		if tc.changed {
			r.deps.expectations.Satisfied(stored)
		}
		wait := awaitTrainer(t.Context(), jobOf(t, r, stored)).again
		expect.That(t, (wait > 0) == tc.wantWait && wait <= trainerSilent, "awaitTrainer() = %s; want to wait: %t", wait, tc.wantWait)
		wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
	})
}
