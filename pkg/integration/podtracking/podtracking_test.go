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
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
	named := func(name string) *trainjob.TrainJob {
		return &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "t"}}
	}
	job := func(controller string) *batchv1.Job {
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "j"}}
		if controller != "" {
			child.OwnerReferences = []metav1.OwnerReference{{APIVersion: jobsetapi.SchemeGroupVersion.String(), Kind: "JobSet", Name: controller, UID: "js", Controller: new(true)}}
		}
		return child
	}
	jobSet := func(uid types.UID, controller string) *jobsetapi.JobSet {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: uid}}
		if controller != "" {
			js.OwnerReferences = []metav1.OwnerReference{{Kind: controller, Name: "job", UID: "t", Controller: new(true)}}
		}
		return js
	}
	queued := func(child *batchv1.Job) *batchv1.Job {
		child.Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/podset": "node"}
		return child
	}
	known := func(child *batchv1.Job) *batchv1.Job {
		child.Labels = map[string]string{jobsetapi.JobSetNameKey: "job"}
		return child
	}
	type objects = []client.Object
	tests := map[string]struct {
		pod *corev1.Pod
		// there are the pod's Job and that one's JobSet, where they are.
		there objects
		want  int
	}{
		"a pod that runs":                            {pod: pod(), there: objects{queued(job("job"))}, want: 1},
		"a pod whose Job is gone":                    {pod: pod(), want: 1},
		"the same of a Job that does not queue":      {pod: pod(unqueued)},
		"a pod of a TrainJob's JobSet":               {pod: pod(), there: objects{job("job"), jobSet("js", "TrainJob")}, want: 1},
		"a pod of a JobSet that is gone":             {pod: pod(), there: objects{queued(job("job")), jobSet("next", "")}, want: 1},
		"the same of no JobSet of a TrainJob's":      {pod: pod(), there: objects{job("job"), jobSet("next", "")}},
		"a pod of somebody's own JobSet":             {pod: pod(), there: objects{job("job"), jobSet("js", "")}},
		"the same of a JobSet of another kind's":     {pod: pod(), there: objects{job("job"), jobSet("js", "Job")}},
		"a pod whose Job was made again":             {pod: pod(), there: objects{kit.With(job(""), func(j *batchv1.Job) { j.UID = "next" })}, want: 1},
		"a pod of a Job that somebody labels":        {pod: pod(), there: objects{job("")}},
		"a pod of a Job of another JobSet's":         {pod: pod(), there: objects{job("other")}},
		"a pod on its way out":                       {pod: pod(deleted), want: 1},
		"a pod that may be bound at any moment":      {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }), want: 1},
		"a pod at the admission gate":                {pod: pod(at(patch.AdmissionGate))},
		"a pod at a gate that its user may take off": {pod: pod(at("example.com/mine")), want: 1},
		"a pod at both":                              {pod: pod(at("example.com/mine", patch.AdmissionGate))},
		"a deleted pod that was never bound":         {pod: pod(at(), deleted)},
		"a pod that has succeeded":                   {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		"a pod that has failed":                      {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		"a pod of another JobSet":                    {pod: pod(func(p *corev1.Pod) { p.Labels[jobsetapi.JobSetNameKey] = "other" })},
		"a pod that somebody labels":                 {pod: pod(func(p *corev1.Pod) { p.OwnerReferences = nil })},
		"a pod that only names a Job as its owner": {pod: pod(func(p *corev1.Pod) { delete(p.Labels, "kueue.x-k8s.io/podset") }),
			there: objects{known(job("job")), jobSet("js", "TrainJob")}},
		"a pod that queues by itself":                    {pod: pod(admittedAs("pod-ghost-1a2b3"))},
		"the same of a kind that only sounds like a Job": {pod: pod(func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" })},
		"a pod of a Job that queues by itself, and gone": {pod: pod(admittedAs("job-z-1a2b3"))},
		"a pod of a group with a TrainJob's name":        {pod: pod(admittedAs("trainjob-mine"), func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/pod-group-name"] = "trainjob-mine" })},
		"a pod of a TrainJob's Workload that is gone":    {pod: pod(admittedAs("trainjob-job-1a2b3")), want: 1},
		"a pod of a Workload that somebody made": {pod: pod(admittedAs("pod-mine"), func(p *corev1.Pod) { p.Labels["kueue.x-k8s.io/pod-group-name"] = "any" }),
			there: objects{inttest.WorkloadOf(named("job"), func(wl *kueue.Workload) { wl.Name = "pod-mine" })}, want: 1},
		"a pod of a Job of somebody's JobSet of before": {pod: pod(), there: objects{queued(kit.With(job("job"), func(child *batchv1.Job) {
			child.Spec.Template.Annotations = map[string]string{"kueue.x-k8s.io/workload": "jobset-job-1a2b3"}
		}))}},
		"a pod of a Job that is not queued": {pod: pod(unqueued), there: objects{known(job("job")), jobSet("js", "TrainJob")}, want: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := inttest.Fake(append(tc.there, tc.pod)...).Build()
			name := types.NamespacedName{Namespace: "ns", Name: "job"}
			view := expect.Must(state.Observe(t.Context(), c, name))(t)
			pods, err := Pods{View: view, Live: inttest.PodsByPhase(c)}.Left(t.Context(), name)
			expect.That(t, err == nil && len(pods) == tc.want, "Left returns %d pods, %v, want %d", len(pods), err, tc.want)
		})
	}
}

// Whoever may make pods, and Jobs and JobSets that make pods, may give them the label of somebody's JobSet.
func TestStrangersPodsCostNoRequest(t *testing.T) {
	ownedBy := func(kind string, uid types.UID) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "j", OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "job", UID: uid, Controller: new(true)}}}}
	}
	plain := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "plain"}}
	cases := map[string]struct {
		pod  *corev1.Pod
		view state.View
	}{
		"a pod without Kueue's label":        {pod: inttest.PodOf("ns", "job", func(pod *corev1.Pod) { delete(pod.Labels, "kueue.x-k8s.io/podset") })},
		"a pod of a Job that no JobSet made": {pod: inttest.PodOf("ns", "job"), view: state.View{Jobs: []batchv1.Job{*ownedBy("Other", "x")}}},
		"a pod of a JobSet that no TrainJob controls": {pod: inttest.PodOf("ns", "job"),
			view: state.View{Jobs: []batchv1.Job{*ownedBy("JobSet", "plain")}, JobSet: plain}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := kit.Gets(inttest.PodsByPhase(inttest.Fake(tc.pod).Build()), func(client.Object, client.ObjectKey) error {
				return errors.New("the API server is asked for its Job")
			})
			pods := expect.Must(Pods{Live: live, View: tc.view}.Left(t.Context(), types.NamespacedName{Namespace: "ns", Name: "job"}))(t)
			expect.Same(t, "Unexpected number of pods left", 0, len(pods))
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
		// ledFor is since when we may have written it.
		ledFor time.Duration
		want   bool
	}{
		"a gate that was written now, by a clock that is behind": {patches: entry(time.Minute, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}, ledFor: time.Second, want: true},
		"a job without our entry":                                {jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a placed job":                                           {patches: entry(0, patch.Placement{Name: "node"}), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a gate that Trainer has not passed on yet":              {patches: entry(0, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", corev1.PodSchedulingGate{Name: "other"})}, want: true},
		"a gate that Trainer could not pass on":                  {patches: entry(time.Minute, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node")}},
		"a gate that the JobSet holds":                           {patches: entry(0, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", ours)}},
		"a replicated job that came later to a runtime":          {patches: entry(0, patch.Gated("node")), jobs: []jobsetapi.ReplicatedJob{replicatedJob("node", ours), replicatedJob("new")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: tc.jobs}}
			job := &trainjob.TrainJob{Spec: trainjob.Spec{Suspend: new(true), RuntimePatches: tc.patches}}
			led := time.Time{}
			if tc.ledFor > 0 {
				led = time.Now().Add(-tc.ledFor)
			}
			pods := Pods{View: state.View{At: time.Now()}, Field: patch.Of(trainjob.Trainer23), Expectations: testenv.LedSince(led)}
			expect.Same(t, "Unexpected overtaken", tc.want, pods.MayStillResume(job, js) > 0)
		})
	}
}

func TestActive(t *testing.T) {
	waits, complete := inttest.Job("a"), inttest.Job("a")
	complete.Status.Conditions = append(complete.Status.Conditions, kit.True(trainer.TrainJobComplete, ""))
	over := func(js *jobsetapi.JobSet) *jobsetapi.JobSet {
		js.Status.TerminalState = string(jobsetapi.JobSetCompleted)
		return js
	}
	deleted := func(js *jobsetapi.JobSet) *jobsetapi.JobSet {
		js.DeletionTimestamp, js.Finalizers = new(metav1.Now()), []string{metav1.FinalizerDeleteDependents}
		return js
	}
	jobSet := func(suspend bool, active int32) *jobsetapi.JobSet {
		js := inttest.JobSetOf(waits, suspend)
		js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: active}}
		return js
	}
	stopped := func(ago time.Duration) *trainjob.TrainJob {
		job, suspended := inttest.Job("a"), kit.True(trainer.TrainJobSuspended, "")
		suspended.LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
		job.Status.Conditions = []metav1.Condition{suspended}
		return job
	}
	pod := inttest.PodOf(waits.Namespace, waits.Name)
	gated := pod.DeepCopy()
	gated.Spec = corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}
	tests := map[string]struct {
		job    *trainjob.TrainJob
		jobSet *jobsetapi.JobSet
		pod    *corev1.Pod
		// closed is for how long the namespace is being deleted.
		closed time.Duration
		want   bool
	}{
		"a JobSet runs in a namespace that is deleted": {jobSet: jobSet(false, 1), closed: time.Minute},
		"one that others may not know of yet":          {jobSet: jobSet(false, 1), closed: time.Second, want: true},
		"a pod is left in a namespace that is deleted": {jobSet: jobSet(false, 1), closed: time.Minute, pod: pod, want: true},
		"a pod is left behind the gate there":          {jobSet: jobSet(false, 1), closed: time.Minute, pod: gated, want: true},
		"the JobSet of a job that has ended":           {job: complete, jobSet: over(jobSet(false, 0))},
		"it is deleted":                                {job: complete, jobSet: deleted(jobSet(false, 0))},
		"another one is made of it":                    {job: complete, jobSet: jobSet(false, 0), want: true},
		"another one is made of it, suspended":         {job: complete, jobSet: jobSet(true, 0)},
		"there is no JobSet":                           {},
		"a JobSet is suspended and without pods":       {jobSet: jobSet(true, 0)},
		"a JobSet is not suspended yet":                {jobSet: jobSet(false, 0), want: true},
		"a JobSet has not heard of the last pod":       {jobSet: jobSet(true, 1), want: true},
		"a JobSet never hears of the last pod":         {job: stopped(2 * jobSetWithin), jobSet: jobSet(true, 1)},
		"it has yet to hear of it":                     {job: stopped(time.Second), jobSet: jobSet(true, 1), want: true},
		"it never hears, and a pod is there":           {job: stopped(2 * jobSetWithin), jobSet: jobSet(true, 1), pod: pod, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var there []client.Object
			if tc.jobSet != nil {
				there = append(there, tc.jobSet)
			}
			if tc.pod != nil {
				there = append(there, tc.pod)
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
