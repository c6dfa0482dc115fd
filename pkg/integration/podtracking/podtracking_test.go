// SPDX-License-Identifier: Apache-2.0

package podtracking

import (
	"cmp"
	"errors"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var jobKey = types.NamespacedName{Namespace: "ns", Name: "job"}

func TestPodsLeft(t *testing.T) {
	pod := func(changes ...func(*corev1.Pod)) *corev1.Pod { return inttest.PodOf("ns", "job", changes...) }
	at := func(gates ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			for _, gate := range gates {
				p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
			}
		}
	}
	unqueued := func(p *corev1.Pod) {
		p.Labels = map[string]string{jobsetapi.JobSetNameKey: "job", batchv1.ControllerUidLabel: "j"}
	}
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = new(metav1.Unix(1, 0)), []string{"test/hold"} }
	admittedAs := func(workload string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{"kueue.x-k8s.io/workload": workload} }
	}
	trainJob := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "t"}}
	job := func(controller string, changes ...func(*batchv1.Job)) *batchv1.Job {
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "j"}}
		if controller != "" {
			child.OwnerReferences = []metav1.OwnerReference{{APIVersion: jobsetapi.SchemeGroupVersion.String(), Kind: "JobSet", Name: controller, UID: "js", Controller: new(true)}}
		}
		return kit.With(child, changes...)
	}
	jobSet := func(uid types.UID, controller string) *jobsetapi.JobSet {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: uid}}
		if controller != "" {
			js.OwnerReferences = []metav1.OwnerReference{{APIVersion: trainjob.GVK.GroupVersion().String(), Kind: controller, Name: "job", UID: "t", Controller: new(true)}}
		}
		return js
	}
	queued := func(child *batchv1.Job) {
		child.Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/podset": "node"}
	}
	known := func(child *batchv1.Job) { child.Labels = map[string]string{jobsetapi.JobSetNameKey: "job"} }
	before := func(child *batchv1.Job) {
		child.Spec.Template.Annotations = map[string]string{"kueue.x-k8s.io/workload": "jobset-job-1a2b3"}
	}
	type objects = []client.Object
	type row struct {
		pod *corev1.Pod
		// there are the pod's Job and that one's JobSet, where they are.
		there objects
		want  int
	}
	expect.Rows(t, map[string]row{
		"a pod that runs":                                {pod: pod(), there: objects{job("job", queued)}, want: 1},
		"a pod whose Job is gone":                        {pod: pod(), want: 1},
		"the same of a Job that does not queue":          {pod: pod(unqueued)},
		"a pod of a TrainJob's JobSet":                   {pod: pod(), there: objects{job("job"), jobSet("js", "TrainJob")}, want: 1},
		"a pod of a JobSet that is gone":                 {pod: pod(), there: objects{job("job", queued), jobSet("next", "")}, want: 1},
		"the same of no JobSet of a TrainJob's":          {pod: pod(), there: objects{job("job"), jobSet("next", "")}},
		"a pod of somebody's own JobSet":                 {pod: pod(), there: objects{job("job"), jobSet("js", "")}},
		"the same of a JobSet of another kind's":         {pod: pod(), there: objects{job("job"), jobSet("js", "Job")}},
		"a pod whose Job was made again":                 {pod: pod(), there: objects{job("", func(j *batchv1.Job) { j.UID = "next" })}, want: 1},
		"a pod of a Job that somebody labels":            {pod: pod(), there: objects{job("")}},
		"a pod of a Job of another JobSet's":             {pod: pod(), there: objects{job("other")}},
		"the same of one that queues":                    {pod: pod(), there: objects{job("other", queued)}},
		"a pod that says it is of another Workload":      {pod: pod(unqueued, admittedAs("pod-z-1a2b3")), there: objects{job("job", known), jobSet("js", "TrainJob")}, want: 1},
		"a pod on its way out":                           {pod: pod(deleted), want: 1},
		"a pod that may be bound at any moment":          {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }), want: 1},
		"a pod at the admission gate":                    {pod: pod(at(patch.AdmissionGate))},
		"a pod at a gate that its user may take off":     {pod: pod(at("example.com/mine")), want: 1},
		"a pod at both":                                  {pod: pod(at("example.com/mine", patch.AdmissionGate))},
		"a deleted pod that was never bound":             {pod: pod(at(), deleted)},
		"a pod that has succeeded":                       {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		"a pod that has failed":                          {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		"a pod of a JobSet of another namespace":         {pod: pod(func(p *corev1.Pod) { p.Namespace = "other" })},
		"a pod of another JobSet":                        {pod: pod(func(p *corev1.Pod) { p.Labels[jobsetapi.JobSetNameKey] = "other" })},
		"a pod that somebody labels":                     {pod: pod(func(p *corev1.Pod) { p.OwnerReferences = nil })},
		"a pod that only names a Job as its owner":       {pod: pod(func(p *corev1.Pod) { delete(p.Labels, "kueue.x-k8s.io/podset") }), there: objects{job("job", known), jobSet("js", "TrainJob")}},
		"a pod that queues by itself":                    {pod: pod(admittedAs("pod-ghost-1a2b3"))},
		"the same of a kind that only sounds like a Job": {pod: pod(func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" })},
		"a pod of a Job that queues by itself, and gone": {pod: pod(admittedAs("job-z-1a2b3"))},
		"a pod of a group with a TrainJob's name":        {pod: pod(admittedAs("trainjob-mine"), func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/pod-group-name"] = "trainjob-mine" })},
		"a pod of a TrainJob's Workload that is gone":    {pod: pod(admittedAs("trainjob-job-1a2b3")), want: 1},
		"a pod of a Workload that somebody made": {pod: pod(admittedAs("pod-mine"), func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/pod-group-name"] = "any" }),
			there: objects{inttest.WorkloadOf(trainJob, func(wl *kueue.Workload) { wl.Name = "pod-mine" })}, want: 1},
		"a pod of a Job of somebody's JobSet of before": {pod: pod(), there: objects{job("job", queued, before)}},
		"a pod of a Job that is not queued":             {pod: pod(unqueued), there: objects{job("job", known), jobSet("js", "TrainJob")}, want: 1},
	}, func(t *testing.T, tc row) {
		c := inttest.Fake(append(tc.there, tc.pod)...).Build()
		pods := expect.Must(Pods{View: viewOf(t, c, trainJob), Live: inttest.PodsByPhase(c)}.Left(t.Context()))(t)
		expect.Same(t, "Unexpected number of pods left", tc.want, len(pods))
	})
}

// Whoever may make pods, and Jobs and JobSets that make pods, may give them the label of somebody's JobSet.
func TestStrangersPodsCostNoRequest(t *testing.T) {
	ownedBy := func(kind string, uid types.UID) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "j", OwnerReferences: []metav1.OwnerReference{{APIVersion: jobsetapi.SchemeGroupVersion.String(), Kind: kind, Name: "job", UID: uid, Controller: new(true)}}}}
	}
	plain := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "plain"}}
	type row struct {
		pod  *corev1.Pod
		view state.View
	}
	expect.Rows(t, map[string]row{
		"a pod without Kueue's label":                 {pod: inttest.PodOf("ns", "job", func(pod *corev1.Pod) { delete(pod.Labels, "kueue.x-k8s.io/podset") })},
		"a pod of a Job that no JobSet made":          {pod: inttest.PodOf("ns", "job"), view: state.View{Jobs: []batchv1.Job{*ownedBy("Other", "x")}}},
		"a pod of a JobSet that no TrainJob controls": {pod: inttest.PodOf("ns", "job"), view: state.View{Jobs: []batchv1.Job{*ownedBy("JobSet", "plain")}, JobSet: plain}},
	}, func(t *testing.T, tc row) {
		live := kit.Gets(inttest.PodsByPhase(inttest.Fake(tc.pod).Build()), func(client.Object, client.ObjectKey) error {
			return errors.New("the API server is asked for its Job")
		})
		tc.view.Name = jobKey
		pods := expect.Must(Pods{Live: live, View: tc.view}.Left(t.Context()))(t)
		expect.Same(t, "Unexpected number of pods left", 0, len(pods))
	})
}

func TestOvertaken(t *testing.T) {
	now, before := time.Now(), time.Now().Add(-time.Minute)
	entry := func(at time.Time, of patch.Placement) []trainjob.RuntimePatch { return entryAt(t, at, of) }
	replicatedJob := func(name string, gates ...corev1.PodSchedulingGate) jobsetapi.ReplicatedJob {
		rj := jobsetapi.ReplicatedJob{Name: name}
		rj.Template.Spec.Template.Spec.SchedulingGates = gates
		return rj
	}
	ours := corev1.PodSchedulingGate{Name: patch.AdmissionGate}
	type row struct {
		patches []trainjob.RuntimePatch
		jobs    []jobsetapi.ReplicatedJob
		// led is since when we may have written it.
		led  time.Time
		want bool
	}
	expect.Rows(t, map[string]row{
		"a gate that was written now, by a clock that is behind": {patches: entry(before, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}, led: now.Add(-time.Second), want: true},
		"a job without our entry":                                {jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a placed job":                                           {patches: entry(now, patch.Placement{Name: "node"}), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a gate that Trainer has not passed on yet":              {patches: entry(now, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", corev1.PodSchedulingGate{Name: "other"})}, want: true},
		"a gate that Trainer could not pass on":                  {patches: entry(before, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a gate that the JobSet holds":                           {patches: entry(now, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", ours)}},
		"a replicated job that came later to a runtime":          {patches: entry(now, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", ours), replicatedJob("new")}},
	}, func(t *testing.T, tc row) {
		js := &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: tc.jobs}}
		job := &trainjob.TrainJob{Spec: trainjob.Spec{Suspend: new(true), RuntimePatches: tc.patches}}
		pods := Pods{View: state.View{Name: jobKey, At: time.Now()}, Field: patch.Of(trainjob.Trainer23), Expectations: testenv.LedSince(tc.led)}
		expect.Same(t, "Unexpected overtaken", tc.want, pods.MayStillResume(job, js) > 0)
	})
}

func TestActive(t *testing.T) {
	waits := inttest.Job("a")
	says := func(condition string, ago time.Duration) *trainjob.TrainJob {
		job, is := inttest.Job("a"), kit.True(condition, "")
		is.LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
		job.Status.Conditions = []metav1.Condition{is}
		return job
	}
	complete := says(trainer.TrainJobComplete, 0)
	stopped := func(ago time.Duration) *trainjob.TrainJob { return says(trainer.TrainJobSuspended, ago) }
	over := func(js *jobsetapi.JobSet) { js.Status.TerminalState = string(jobsetapi.JobSetCompleted) }
	resumed := func(js *jobsetapi.JobSet) {
		js.Status.Conditions = []metav1.Condition{{Type: string(jobsetapi.JobSetSuspended), Status: metav1.ConditionFalse}}
	}
	neverSuspended := func(js *jobsetapi.JobSet) { js.Status.Conditions = nil }
	deleted := func(js *jobsetapi.JobSet) {
		js.DeletionTimestamp, js.Finalizers = new(metav1.Now()), []string{metav1.FinalizerDeleteDependents}
	}
	jobSet := func(suspend bool, active int32, changes ...func(*jobsetapi.JobSet)) *jobsetapi.JobSet {
		js := inttest.JobSetOf(waits, suspend)
		js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: active}}
		return kit.With(js, changes...)
	}
	pod := []client.Object{inttest.PodOf(waits.Namespace, waits.Name)}
	gated := []client.Object{inttest.PodOf(waits.Namespace, waits.Name, func(pod *corev1.Pod) {
		pod.Spec = corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}
	})}
	type row struct {
		job    *trainjob.TrainJob
		jobSet *jobsetapi.JobSet
		pod    []client.Object
		// closed is for how long the namespace is being deleted.
		closed time.Duration
		want   bool
	}
	expect.Rows(t, map[string]row{
		"a JobSet runs in a namespace that is deleted":             {jobSet: jobSet(false, 1), closed: time.Minute},
		"one that others may not know of yet":                      {jobSet: jobSet(false, 1), closed: time.Second, want: true},
		"a pod is left in a namespace that is deleted":             {jobSet: jobSet(false, 1), closed: time.Minute, pod: pod, want: true},
		"a pod is left behind the gate there":                      {jobSet: jobSet(false, 1), closed: time.Minute, pod: gated, want: true},
		"the JobSet of a job that has ended":                       {job: complete, jobSet: jobSet(false, 0, over)},
		"it is deleted":                                            {job: complete, jobSet: jobSet(false, 0, deleted)},
		"another one is made of it":                                {job: complete, jobSet: jobSet(false, 0), want: true},
		"another one is made of it, suspended":                     {job: complete, jobSet: jobSet(true, 0)},
		"there is no JobSet":                                       {},
		"a JobSet is suspended and without pods":                   {jobSet: jobSet(true, 0)},
		"a JobSet is not suspended yet":                            {jobSet: jobSet(false, 0), want: true},
		"a JobSet has not heard of the last pod":                   {jobSet: jobSet(true, 1), want: true},
		"a JobSet never hears of the last pod":                     {job: stopped(2 * jobSetWithin), jobSet: jobSet(true, 1)},
		"a JobSet that restarts has not said that it is suspended": {job: stopped(time.Second), jobSet: jobSet(true, 0, resumed), want: true},
		"it says nothing of one that it never saw suspended":       {job: stopped(time.Second), jobSet: jobSet(true, 0, neverSuspended), want: true},
		"it never says so":                                         {job: stopped(2 * jobSetWithin), jobSet: jobSet(true, 0, resumed)},
		"it is deleted, and says nothing any more":                 {job: stopped(time.Second), jobSet: jobSet(true, 0, resumed, deleted)},
		"it has yet to hear of it":                                 {job: stopped(time.Second), jobSet: jobSet(true, 1), want: true},
		"it never hears, and a pod is there":                       {job: stopped(2 * jobSetWithin), jobSet: jobSet(true, 1), pod: pod, want: true},
	}, func(t *testing.T, tc row) {
		there := tc.pod
		if tc.jobSet != nil {
			there = append(there, tc.jobSet)
		}
		c := inttest.Fake(there...).Build()
		pods := Pods{View: viewOf(t, c, waits), Live: inttest.PodsByPhase(c), Field: patch.Of(trainjob.Trainer23), Expectations: testenv.LedSince(time.Time{})}
		if tc.closed > 0 {
			pods.View.NamespaceDeleted = pods.View.At.Add(-tc.closed)
			// Its controller is refused there, and has not said yet that it is suspended.
			pods.View.Jobs = append(pods.View.Jobs, *kit.ChildJob(tc.jobSet, "node", kit.Active(1)))
		}
		expect.Same(t, "Unexpected Active", tc.want, expect.Must(pods.Active(t.Context(), cmp.Or(tc.job, waits)))(t))
	})
}

// Somebody's pods of a megabyte each are not kept in memory.
func TestSlim(t *testing.T) {
	pod := inttest.PodOf("ns", "job", func(pod *corev1.Pod) {
		pod.Labels["example.com/large"], pod.Labels[jobsetapi.JobSetUIDKey] = "x", "js"
		pod.Annotations = map[string]string{"example.com/large": "x"}
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: "ConfigMap", Name: "large"})
		pod.Spec.Containers = []corev1.Container{{Name: "node", Env: []corev1.EnvVar{{Name: "LARGE", Value: "x"}}}}
	})
	want := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: pod.Name, UID: pod.UID, OwnerReferences: pod.OwnerReferences[:1],
		Labels: map[string]string{jobsetapi.JobSetUIDKey: "js", kueueconstants.PodSetLabel: "node"},
	}}
	expect.Same(t, "Unexpected pod", want, slim(pod))
}

func TestStoppedJobIsActiveUntilTrainerAnswered(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	// past is what the manager remembers of a job before it was stopped.
	type past struct {
		*jobclient.Expectations
		clock *clocktesting.FakePassiveClock
		job   *trainjob.TrainJob
	}
	// Before it was resumed it had an earlier generation.
	starts := func(p past) func() {
		before := p.job.DeepCopy()
		before.Generation--
		return p.ExpectResume(before)
	}
	started := func(p past) { starts(p) }
	stoppedLongAgo := func(p past) {
		starts(p)
		p.clock.SetTime(long)
		p.StoppedBeforeResume(p.job)
		p.clock.SetTime(time.Now())
	}
	stoppedNow := func(p past) { p.Satisfied(p.job) }
	stoppedBefore := func(p past) {
		p.clock.SetTime(long)
		p.Satisfied(p.job)
		p.clock.SetTime(time.Now())
	}
	running := func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }
	elsewhere := func(job *trainjob.TrainJob) { job.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }
	written := func(at time.Time, of patch.Placement) func(*trainjob.TrainJob) {
		return func(job *trainjob.TrainJob) { job.Spec.RuntimePatches = entryAt(t, at, of) }
	}
	placed := patch.Placement{Name: "node"}
	type row struct {
		began  time.Time
		before func(past)
		change func(*trainjob.TrainJob)
		// noJobSet: Trainer has not made one, or somebody deleted it.
		noJobSet bool
		want     bool
	}
	expect.Rows(t, map[string]row{
		"it was never started":                                                      {began: long},
		"it was started, and Trainer may have that in hand":                         {began: long, before: started, want: true},
		"and has no JobSet, which Trainer may be about to make":                     {began: long, before: started, noJobSet: true, want: true},
		"it ran, was stopped, and its JobSet is gone, which Trainer may make again": {began: long, before: stoppedNow, change: written(long, placed), noJobSet: true, want: true},
		"it ran and was stopped long before its JobSet was deleted":                 {began: long, before: stoppedBefore, change: written(long, placed), noJobSet: true},
		"it waits at the gate, and what Trainer makes of it has that":               {began: long, before: stoppedNow, change: written(long, patch.Gated("node")), noJobSet: true},
		"Trainer had time enough since":                                             {began: long, before: stoppedLongAgo},
		"Trainer resumed it, and suspended it again":                                {began: long, before: func(p past) { starts(p); p.SawResumed(p.job) }},
		"a job of the same name was started": {began: long, before: func(p past) {
			p.job = kit.With(p.job.DeepCopy(), func(job *trainjob.TrainJob) { job.UID = "former" })
			starts(p)
		}},
		"another process may have started it a moment ago":                         {began: time.Now(), change: written(time.Now(), placed), want: true},
		"another process had never placed it":                                      {began: time.Now()},
		"another process may have started it again with the placement that it had": {began: time.Now(), change: written(long, placed), want: true},
		"another process had brought it to the gate before":                        {began: time.Now(), change: written(long, patch.Gated("node"))},
		"the start is not in this view":                                            {began: long, before: func(p past) { p.ExpectResume(p.job) }},
		"the start was refused":                                                    {began: long, before: func(p past) { starts(p)() }},
		"it is not stopped":                                                        {began: long, before: started, change: running},
		"it is in another cluster":                                                 {began: long, before: started, noJobSet: true, change: elsewhere},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		job.Generation, job.Spec.Suspend = 5, new(true)
		kit.With(job, tc.change)
		c := inttest.Fake(inttest.JobSetOf(job, true)).Build()
		if tc.noJobSet {
			c = inttest.Fake().Build()
		}
		expectations, clock := testenv.LedSinceByClock(tc.began)
		pods := Pods{View: viewOf(t, c, job), Field: patch.Of(trainjob.Trainer23), Expectations: expectations}
		if tc.before != nil {
			tc.before(past{expectations, clock, job})
		}
		for range 2 {
			expect.Same(t, "Unexpected Active", tc.want, expect.Must(pods.Active(t.Context(), job))(t))
		}
	})
}

func TestJobSetThatRunsIsTrainersAnswer(t *testing.T) {
	type row struct {
		suspended bool
		child     func(*batchv1.Job)
		want      bool
	}
	expect.Rows(t, map[string]row{
		"a JobSet and a Job of it run":                 {child: kit.Active(1), want: true},
		"the Job controller says that it has resumed":  {child: func(j *batchv1.Job) { j.Status.StartTime = new(metav1.Now()) }, want: true},
		"the Job controller has not seen that it runs": {},
		"a Job of the run before has ended":            {child: kit.All(kit.Completed, func(j *batchv1.Job) { j.Status.StartTime = new(metav1.Now()) })},
		"a JobSet is still suspended":                  {suspended: true, child: kit.Active(1)},
		"a Job of a former JobSet runs":                {child: kit.All(kit.Active(1), func(j *batchv1.Job) { j.OwnerReferences[0].UID = "former" })},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		js := inttest.JobSetOf(job, tc.suspended)
		c := inttest.Fake(js, kit.ChildJob(js, "node", tc.child)).Build()
		expectations := testenv.LedSince(time.Time{})
		expectations.ExpectResume(job)
		Pods{View: viewOf(t, c, job), Expectations: expectations}.NoteResumed(job)
		job.Generation++
		_, waits := expectations.StoppedBeforeResume(job)
		expect.That(t, waits != tc.want, "Trainer has answered: %t, want %t", !waits, tc.want)
	})
}

func viewOf(t *testing.T, c client.Client, job *trainjob.TrainJob) state.View {
	t.Helper()
	return expect.Must(state.Observe(t.Context(), c, client.ObjectKeyFromObject(job)))(t)
}

func entryAt(t *testing.T, at time.Time, placements ...patch.Placement) []trainjob.RuntimePatch {
	t.Helper()
	var spec trainjob.Spec
	patch.Of(trainjob.Trainer23).Set(&spec, placements)
	expect.NoError(t, patch.Stamp(spec.RuntimePatches, metav1.NewTime(at)))
	return spec.RuntimePatches
}

// The caches may have a Job from before its start, when its pods had no label of Kueue's, and know only the next JobSet of the name.
func TestPodsOfAJobThatTheCachesKnowFromBeforeItsStart(t *testing.T) {
	child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "j",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: jobsetapi.SchemeGroupVersion.String(), Kind: "JobSet", Name: "job", UID: "js", Controller: new(true)}}}}
	stored := child.DeepCopy()
	stored.Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/podset": "node"}
	view := state.View{Name: jobKey, Jobs: []batchv1.Job{*child}, JobSet: &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "next"}}}
	c := inttest.Fake(stored, inttest.PodOf("ns", "job")).Build()
	expect.Same(t, "pods left", 1, len(expect.Must(Pods{Live: inttest.PodsByPhase(c), View: view}.Left(t.Context()))(t)))
}

// Kueue refuses pods of a TrainJob that is gone, until there is another one of its name.
func TestMayRunYet(t *testing.T) {
	deleted := func(js *jobsetapi.JobSet) {
		js.DeletionTimestamp, js.Finalizers = new(metav1.Now()), []string{metav1.FinalizerDeleteDependents}
	}
	const long = time.Hour
	type row struct {
		suspended bool
		// stopped is how long ago Kueue has evicted it; 0: it has not.
		stopped time.Duration
		// kept is how long ago the job was deleted that a finalizer keeps; 0: it is gone.
		kept   time.Duration
		closed bool
		change func(*jobsetapi.JobSet)
		want   bool
	}
	expect.Rows(t, map[string]row{
		"its JobSet was resumed":                 {stopped: long, want: true},
		"Trainer may have it in hand":            {suspended: true, stopped: time.Second, want: true},
		"nobody has stopped it yet":              {suspended: true, want: true},
		"a finalizer has kept the job for long":  {suspended: true, kept: long},
		"a finalizer keeps the job":              {suspended: true, kept: time.Second, want: true},
		"it was stopped long before":             {suspended: true, stopped: long, kept: time.Second},
		"nobody can make a pod in its namespace": {stopped: long, closed: true},
		"its JobSet is suspended":                {suspended: true, stopped: long},
		"its JobSet has ended":                   {stopped: long, change: func(js *jobsetapi.JobSet) { js.Status.TerminalState = string(jobsetapi.JobSetFailed) }},
		"its JobSet is deleted":                  {stopped: long, change: deleted},
		"the JobSet is that of another of it":    {stopped: long, change: func(js *jobsetapi.JobSet) { js.OwnerReferences[0].UID = "other" }},
		"the JobSet is that of a made-up kind":   {stopped: long, change: func(js *jobsetapi.JobSet) { js.OwnerReferences[0].Kind = "X" }},
	}, func(t *testing.T, tc row) {
		job, wl := inttest.Job("a"), inttest.AdmittedOf("a", kit.Since(time.Now().Add(-long)))
		if tc.stopped > 0 {
			kit.With(wl, kit.Is(kueue.WorkloadEvicted, ""), kit.Since(time.Now().Add(-tc.stopped)))
		}
		view := viewOf(t, inttest.Fake(wl, kit.With(inttest.JobSetOf(job, tc.suspended), tc.change)).Build(), job)
		if tc.kept > 0 {
			job.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-tc.kept)))
		}
		if tc.closed {
			view.NamespaceDeleted = time.Now().Add(-long)
		}
		expect.Same(t, "It may get pods", tc.want, Pods{View: view}.MayRunYet(job) > 0)
	})
}

// How often the API server is asked for the last pod.
func TestRecheckIn(t *testing.T) {
	for ago, want := range map[time.Duration]time.Duration{0: RecheckMin, 20 * time.Second: 5 * time.Second, time.Hour: recheckMax} {
		expect.Same(t, "Unexpected wait after "+ago.String(), want, RecheckIn(time.Now().Add(-ago)).Round(100*time.Millisecond))
	}
}
