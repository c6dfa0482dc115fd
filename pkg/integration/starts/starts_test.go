// SPDX-License-Identifier: Apache-2.0

package starts

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestHoldBackCountsFromTheEndOfTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		field := patch.Of(trainjob.Trainer23)
		job, s := inttest.Job("uid"), &Record{}
		s.QuotaGoes("wl")
		expect.Same(t, "Unexpected wait of a job that was evicted", 0, s.HeldBack(job, field))
		s.HoldBack("wl", job, field, 2*time.Minute)
		// Its last pod takes longer to end than the job is held back.
		expect.Pass(10 * time.Minute)
		s.QuotaGoes("wl")
		expect.Same(t, "Unexpected time that it is held back after its quota was given back", time.Minute, s.HeldBack(job, field))
		expect.Pass(time.Minute)
		s.QuotaGoes("admitted again")
		expect.Same(t, "Unexpected wait of a job that was preempted before it started", 0, s.HeldBack(job, field))
	})
}

// Kueue admits the same Workload again: what it lacked before counts no more, nor that it was complete.
func TestLacksBeginsWithEachAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(seconds int64) Admission {
			return AdmissionOf(inttest.AdmittedOf("a", kit.Since(time.Unix(seconds, 0))))
		}
		s, first, second := &Record{}, at(1), at(2)
		s.Lacks(first, time.Minute, 0)
		expect.Pass(time.Hour)
		lacking, wait, complete := s.Lacks(first, time.Minute, 0)
		expect.That(t, lacking == time.Hour && wait == 0 && !complete, "In the first admission: lacking %s, wait %s, complete %t", lacking, wait, complete)
		lacking, wait, _ = s.Lacks(second, time.Minute, 0)
		expect.That(t, lacking == 0 && wait == time.Minute, "In the second one: lacking %s, wait %s", lacking, wait)
		s.LacksNothing(second)
		_, _, complete = s.Lacks(second, time.Minute, 0)
		expect.That(t, complete, "That it was complete is forgotten")
		_, _, complete = s.Lacks(at(3), time.Minute, 0)
		expect.That(t, !complete, "It is complete before it has started again")
	})
}

// The Job controller makes pods one by one, also when JobSet has made the Jobs again.
func TestLacksStartsOverWithFewerPodsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Record{}
		for _, look := range []struct {
			missing int32
			want    time.Duration
		}{{10, 0}, {3, 0}, {4, time.Minute}, {3, 2 * time.Minute}, {0, 3 * time.Minute}, {10, 4 * time.Minute}, {9, 0}} {
			lacking, _, _ := s.Lacks(Admission{"wl", 1}, time.Hour, look.missing)
			expect.Same(t, fmt.Sprintf("Unexpected time without %d pods", look.missing), look.want, lacking)
			expect.Pass(time.Minute)
		}
	})
}

func TestHoldBack(t *testing.T) {
	field := patch.Of(trainjob.Trainer23)
	job, s := inttest.Job("uid"), &Record{}
	expect.Same(t, "Unexpected wait of a job that never started", 0, s.HeldBack(job, field))
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		expect.Same(t, fmt.Sprintf("%d: unexpected time that it is held back", i), want, s.HoldBack("wl", job, field, 2*time.Minute))
	}
	for range 10 {
		s.HoldBack("wl", job, field, 2*time.Minute)
	}
	wait := s.HeldBack(job, field)
	expect.That(t, wait <= time.Hour && wait >= 59*time.Minute, "held back for %s, want an hour at the most", wait)
	ours := *job.DeepCopy()
	field.Set(&ours.Spec, []patch.Placement{patch.Gated("node")})
	ours.Spec.Suspend = new(true)
	expect.That(t, s.HeldBack(&ours, field) != 0, "Our own write frees the job")
	stamped := *job.DeepCopy()
	stamped.Labels, stamped.Annotations = map[string]string{"team": "a"}, map[string]string{"example.com/seen": "now"}
	expect.That(t, s.HeldBack(&stamped, field) != 0, "What a controller stamps on it frees the job")
	changed := *job.DeepCopy()
	changed.Annotations = map[string]string{"try-again": "now"}
	expect.Same(t, "Unexpected wait of a changed job", 0, s.HeldBack(&changed, field))
	provisioned := *job.DeepCopy()
	provisioned.Annotations = map[string]string{"provreq.kueue.x-k8s.io/ValidUntilSeconds": "600"}
	expect.Same(t, "Unexpected wait of a job that asks for nodes in another way", 0, s.HeldBack(&provisioned, field))
	moved := *job.DeepCopy()
	moved.Labels = map[string]string{kit.QueueLabel: "another"}
	expect.Same(t, "Unexpected wait of a job that got another queue", 0, s.HeldBack(&moved, field))
	expect.Same(t, "Unexpected time that a changed job is held back", time.Minute, s.HoldBack("wl", &changed, field, 2*time.Minute))
	s.LacksNothing(Admission{workload: "wl"})
	expect.Same(t, "Unexpected time that a job is held back that has started since", time.Minute, s.HoldBack("wl", &changed, field, 2*time.Minute))
}

// Whoever changes the job gets an answer soon, also to the tries after that.
func TestUnmade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &Unmade{}
		wait, refused := u.Wait(1)
		expect.That(t, wait == 0 && !refused, "A job of which nothing is known waits %s; refused: %t", wait, refused)
		for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			expect.Same(t, fmt.Sprintf("%d: unexpected wait", i), want*time.Second, u.Found(true))
		}
		wait, refused = u.Wait(2)
		expect.That(t, wait == changedUnmade && refused, "A job that was changed waits %s; refused: %t", wait, refused)
		expect.Same(t, "Unexpected wait of a job that was changed, and refused again", 10*time.Second, u.Found(true))
		u.Found(false)
		expect.Same(t, "Unexpected wait after a look without a refusal", 10*time.Second, u.Found(true))
	})
}

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
	byTrainer := func(what string) *Lack { return &Lack{What: what, Kind: "TrainJob", Asked: []types.UID{"trainjob"}} }
	byJobSet := func(what string) *Lack { return &Lack{What: what, Kind: "JobSet", Asked: []types.UID{"js"}} }
	byJobs := func(missing int32, what string, jobs ...types.UID) *Lack {
		return &Lack{What: "the Job controller has not made " + what + " of child Job " + string(jobs[0]), Kind: "Job", Asked: jobs, Missing: missing}
	}
	with := func(lack *Lack, live, pods, made bool) *Lack {
		lack.Live, lack.Pods, lack.Made = live, pods, made
		return lack
	}
	type row struct {
		replicated []jobsetapi.ReplicatedJob
		none       bool
		change     func(*jobsetapi.JobSet)
		jobs       []batchv1.Job
		want       *Lack
	}
	expect.Rows(t, map[string]row{
		"no JobSet":          {none: true, want: byTrainer("Trainer has not made JobSet job")},
		"a suspended JobSet": {change: func(js *jobsetapi.JobSet) { js.Spec.Suspend = new(true) }, want: byTrainer("Trainer has not resumed JobSet job")},
		"a JobSet that goes": {change: func(js *jobsetapi.JobSet) { js.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, want: byTrainer("JobSet job is still being deleted")},
		"a finished JobSet":  {change: func(js *jobsetapi.JobSet) { js.Status.TerminalState = string(jobsetapi.JobSetFailed) }},
		"no child Job":       {want: byJobSet("JobSet has not made 1 of 1 child Job of replicated job node")},
		"a suspended child":  {jobs: []batchv1.Job{child("node", 1, batchv1.JobStatus{}, suspended)}, want: byJobSet("JobSet has not resumed child Job job-node-0")},
		"no pod":             {jobs: []batchv1.Job{child("node", 2, batchv1.JobStatus{})}, want: byJobs(2, "2 of 2 pods", "job-node-0")},
		"some pods":          {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 3})}, want: with(byJobs(1, "1 of 4 pods", "job-node-0"), true, true, false)},
		"the others wait for the first to be scheduled":   {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 1}, exclusive)}},
		"the first itself is missing":                     {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{}, exclusive)}, want: byJobs(4, "4 of 4 pods", "job-node-0")},
		"none waits where nodes are labeled":              {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 1}, exclusive, selecting)}, want: with(byJobs(3, "3 of 4 pods", "job-node-0"), true, true, false)},
		"all pods":                                        {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 4})}},
		"all pods, and some are on their way out":         {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 2, Terminating: new(int32(2))})}},
		"a pod failed and others run":                     {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 3, Failed: 1})}},
		"the last pods of many":                           {jobs: []batchv1.Job{child("node", 4, batchv1.JobStatus{Active: 1, Succeeded: 3})}},
		"the only pod failed, and comes again":            {jobs: []batchv1.Job{child("node", 1, batchv1.JobStatus{Failed: 1})}, want: with(byJobs(1, "1 of 1 pod", "job-node-0"), false, true, true)},
		"a Job of no pods":                                {jobs: []batchv1.Job{child("node", 0, batchv1.JobStatus{})}},
		"a stage whose turn has not come":                 {replicated: staged, jobs: []batchv1.Job{child("download", 1, batchv1.JobStatus{Active: 1})}},
		"a stage whose turn has come":                     {replicated: staged, jobs: []batchv1.Job{child("download", 1, complete)}, want: byJobSet("JobSet has not made 1 of 1 child Job of replicated job node")},
		"a stage after one that failed":                   {replicated: staged, jobs: []batchv1.Job{child("download", 1, failed)}},
		"a Job that ended as it was stopped":              {jobs: []batchv1.Job{child("node", 1, complete, suspended)}},
		"no pod of two Jobs":                              {replicated: both, jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{}), child("node", 1, batchv1.JobStatus{})}, want: byJobs(2, "1 of 1 pod", "job-first-0", "job-node-0")},
		"no pod beside a Job that failed for good":        {replicated: both, jobs: []batchv1.Job{child("first", 1, failed), child("node", 1, batchv1.JobStatus{})}, want: byJobs(1, "1 of 1 pod", "job-node-0")},
		"a pod failed, and another Job is done":           {replicated: both, jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{Failed: 1}), child("node", 1, batchv1.JobStatus{Succeeded: 1})}, want: with(byJobs(1, "1 of 1 pod", "job-first-0"), false, true, true)},
		"a later stage in order, after one that is ready": {replicated: both, change: inOrder, want: with(byJobSet("JobSet has not resumed child Job job-node-0"), true, true, false), jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{Active: 1, Ready: new(int32(1))}), child("node", 1, batchv1.JobStatus{}, suspended)}},
		"a later stage in order":                          {replicated: both, change: inOrder, jobs: []batchv1.Job{child("first", 1, batchv1.JobStatus{Active: 1}), child("node", 1, batchv1.JobStatus{}, suspended)}},
	}, func(t *testing.T, tc row) {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "js"}}
		if js.Spec.ReplicatedJobs = tc.replicated; tc.replicated == nil {
			js.Spec.ReplicatedJobs = plain
		}
		kit.With(js, tc.change)
		if tc.none {
			js = nil
		}
		expect.Same(t, "Unexpected lack", tc.want, Of(job, js, tc.jobs))
	})
}
