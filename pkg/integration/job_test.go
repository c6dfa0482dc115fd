// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/util/equality"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPodSetsTellsWhyThereAreNone(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"a runtime that is not there":      {In: `{"runtimeRef":{"name":"none"}}`, Want: `no ClusterTrainingRuntime "none"`},
		"an override that cannot be read":  {In: `{"runtimeRef":{"name":"torch"},"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"spec":{"tolerations":"x"}}]}`, Want: "spec.podTemplateOverrides[0].spec"},
		"a runtime of a kind that is none": {In: `{"runtimeRef":{"name":"torch","kind":"Pod"}}`, Want: "spec.runtimeRef.kind"},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		r, recorder := newReconciler(t)
		r.deps.Field = patch.Of(trainjob.Trainer21)
		j := &job{deps: r.deps}
		expect.NoError(t, json.Unmarshal([]byte(inttest.Manifest(inttest.Queued, tc.In)), &j.TrainJob))
		j.Namespace = "ns"
		j.Suspend()
		podSets, err := j.PodSets(t.Context(), r.deps.client)
		// Trying again before somebody acts is of no use.
		expect.That(t, jobframework.IsUnretryableError(err), "PodSets returned %v, %v", podSets, err)
		wantTold(t, eventsSoFar(recorder, jobevents.ReasonNotDescribed), tc.Want)
	})
}

// A runtime that is deleted, made and deleted again is told of twice.
func TestPodSetsTellsAgainWhatWasMended(t *testing.T) {
	stored, _ := suspendedJob()
	r, recorder := newReconciler(t)
	for _, runtime := range []string{"none", "none", "torch", "none"} {
		j := jobOf(t, r, stored)
		j.Spec.RuntimeRef.Name = runtime
		_, err := j.PodSets(t.Context(), r.deps.client)
		expect.Need(t, (err == nil) == (runtime == "torch"), "PodSets with runtime %s: %v", runtime, err)
	}
	expect.Same(t, "Unexpected number of events", 2, len(recorder.Events))
}

// Quota must not hang on a ConfigMap that every tenant can break.
func TestStopNeedsNoRuntime(t *testing.T) {
	running, js := disagreeing(false, false, true, time.Now().Add(-time.Minute))
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node"}}
	placed := func(job *trainjob.TrainJob) { place(t, job, patch.Placement{Name: "node"}) }
	type row struct {
		change             func(*trainjob.TrainJob)
		there              []client.Object
		snapshot           string
		wantGate, wantTold bool
	}
	expect.Rows(t, map[string]row{
		"our entry names what the runtime did":   {change: placed, snapshot: "no: [runtime", wantGate: true, wantTold: true},
		"the JobSet names it":                    {there: []client.Object{js}, snapshot: "no: [runtime", wantGate: true, wantTold: true},
		"nothing names it, so nothing could run": {snapshot: "no: [runtime", wantTold: true},
		"a snapshot without replicated jobs":     {change: placed, snapshot: "spec: {}", wantGate: true},
	}, func(t *testing.T, tc row) {
		stored := kit.With(running.DeepCopy(), tc.change)
		snapshot := &corev1.ConfigMap{ObjectMeta: inttest.Owned(stored, "job-runtime-snapshot"), Data: map[string]string{"runtime": tc.snapshot}}
		r, recorder := newReconciler(t, append(tc.there, stored, snapshot)...)
		for range 2 {
			expect.Must(jobOf(t, r, storedJob(t, r)).Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
		}
		stored = storedJob(t, r)
		expect.That(t, stored.Suspended() && r.deps.Field.HoldsGate(&stored.Spec) == tc.wantGate,
			"suspended: %t, at the gate: %t, want %t", stored.Suspended(), r.deps.Field.HoldsGate(&stored.Spec), tc.wantGate)
		told := eventsSoFar(recorder, "Warning "+jobevents.ReasonNotDescribed)
		expect.That(t, (len(told) == 1 && strings.Contains(told[0], "job-runtime-snapshot")) == tc.wantTold, "The user is told %q, want: %t", told, tc.wantTold)
	})
}

// The cache lacks most of what JobSet wrote on a Job; the write must not take it away.
func TestPlacingKeepsWhatTheCacheLacks(t *testing.T) {
	counted := map[string]string{"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-index": "0"}
	stored := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js-node-0", Annotations: counted}}
	stored.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "js", Controller: new(true)}}
	template := &stored.Spec.Template
	template.Annotations, template.Labels = maps.Clone(counted), maps.Clone(counted)
	template.Annotations["kueue.x-k8s.io/workload"], template.Labels["kueue.x-k8s.io/podset"] = "former", "node"
	c := inttest.Fake(stored).Build()
	cached := expect.Must(caches.TrimJob(stored.DeepCopy()))(t)
	want := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "h100"}}}
	expect.Must(placeChildJob(t.Context(), &dependencies{client: c}, cached.(*batchv1.Job), want))(t)
	inttest.Reload(t, c, stored)
	want.Labels, want.Annotations = counted, counted
	expect.Same(t, "Unexpected template", *want, stored.Spec.Template)
	expect.Same(t, "Unexpected annotations", counted, stored.Annotations)
}

// The cache has not heard of the flavor that a Job had last.
func TestPlacingByAnOldViewLeavesNoFormerFlavor(t *testing.T) {
	want := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"gpu": "b"}}}
	expect.Rows(t, map[string]map[string]string{
		"from before any run":          nil,
		"from a run on the new flavor": want.Spec.NodeSelector,
	}, func(t *testing.T, known map[string]string) {
		stored := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js-node-0"}}
		stored.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "a"}
		c, cached := inttest.Fake(stored).Build(), stored.DeepCopy()
		cached.Spec.Template.Spec.NodeSelector = known
		placed := expect.Must(placeChildJob(t.Context(), &dependencies{client: c, live: c}, cached, want))(t)
		inttest.Reload(t, c, stored)
		for what, child := range map[string]*batchv1.Job{"that is stored": stored, "that is returned": placed} {
			expect.Same(t, "Unexpected node selector of the Job "+what, want.Spec.NodeSelector, child.Spec.Template.Spec.NodeSelector)
		}
	})
}

// Somebody's webhook may add to what child Jobs ask for, which the caches do not have.
func TestAChildJobThatAsksForMoreIsNotStarted(t *testing.T) {
	stored, js := suspendedJob()
	child := kit.ChildJob(js, "node")
	child.Spec.Suspend = new(true)
	child.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
	child.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Resources: kit.GPUResources("1")}}
	r, _ := newReconciler(t, stored, js, child, inttest.WorkloadOf(stored, kit.Admitted, ofPods(1)))
	for _, try := range []string{"first", "second"} {
		if try == "second" {
			r.deps.client = kit.Gets(r.deps.client, func(obj client.Object, _ client.ObjectKey) error {
				_, is := obj.(*batchv1.Job)
				expect.That(t, !is, "The cache is asked, which has no containers")
				return nil
			})
		}
		j := jobOf(t, r, stored)
		for i := range j.view.Jobs {
			expect.Must(caches.TrimJob(&j.view.Jobs[i]))(t)
		}
		err := placeChildJobs(t.Context(), j, stored)
		expect.That(t, errors.Is(err, errOutdated), "placeChildJobs() = %v at the %s try", err, try)
		expect.Same(t, "Unexpected excess", "child Job job-node-0 asks for 1 of nvidia.com/gpu per pod instead of 0", j.decision.excess)
	}
}

// JobSet leaves the templates of Jobs that are there. Those that run, or are over, may not be changed.
func TestPlaceChildJobs(t *testing.T) {
	away := apierrors.NewServiceUnavailable("away")
	type row struct {
		change       func(*batchv1.Job)
		refusal, err error
		want         bool
	}
	expect.Rows(t, map[string]row{
		"a Job that waits":                     {want: true},
		"one that runs":                        {change: func(child *batchv1.Job) { child.Spec.Suspend = nil }},
		"one that is over":                     {change: kit.Completed},
		"one of which the runtime has no part": {change: func(child *batchv1.Job) { child.Labels[jobsetapi.ReplicatedJobNameKey] = "former" }},
		"one that is gone":                     {refusal: apierrors.NewNotFound(batchv1.Resource("jobs"), "job-node-0"), want: true},
		"one that cannot be written":           {refusal: away, err: away, want: true},
	}, func(t *testing.T, tc row) {
		stored, js := suspendedJob()
		child := kit.ChildJob(js, "node", suspended, tc.change)
		child.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
		r, _ := newReconciler(t, stored, js, child)
		written := false
		r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { written = true; return tc.refusal })
		err := placeChildJobs(t.Context(), jobOf(t, r, stored), stored)
		expect.That(t, errors.Is(err, tc.err), "placeChildJobs() = %v, want %v", err, tc.err)
		expect.Same(t, "It is written", tc.want, written)
	})
}

func TestEnsureHeld(t *testing.T) {
	type row struct {
		job      func(*trainjob.TrainJob)
		workload func(*kueue.Workload)
		want     bool
		// wantOurs is whether it has our own finalizer as well.
		wantOurs bool
	}
	expect.Rows(t, map[string]row{
		"a job that runs": {want: true},
		"a copy that MultiKueue made, which queues":             {workload: kit.Copied, want: true, wantOurs: true},
		"a copy that was evicted, and has pods left":            {workload: kit.All(kit.Copied, kit.Admitted, evicted), want: true, wantOurs: true},
		"a copy that was evicted, and has given its quota back": {workload: kit.All(kit.Copied, evicted, func(wl *kueue.Workload) { wl.Finalizers = []string{placeholder.Finalizer} }), want: true},
		"a job that is deleted":                                 {job: func(job *trainjob.TrainJob) { job.DeletionTimestamp = new(metav1.Now()) }},
		"a job that nobody knows":                               {job: func(job *trainjob.TrainJob) { job.UID = "" }},
		"another job of that name":                              {job: func(job *trainjob.TrainJob) { job.UID = "other" }},
		"a finished job":                                        {job: ended(trainer.TrainJobComplete)},
		"a finished Workload":                                   {workload: kit.Is(kueue.WorkloadFinished, "")},
		"a Workload that is deleted":                            {workload: going},
	}, func(t *testing.T, tc row) {
		trainJob := inttest.Job("a")
		wl := inttest.WorkloadOf(trainJob, tc.workload)
		kit.With(trainJob, tc.job)
		c := inttest.Fake(wl).Build()
		view := state.View{Workloads: []*kueue.Workload{theWorkload(t, c)}}
		held := ensureHeld(t.Context(), &job{deps: &dependencies{client: c}, observed: observed{TrainJob: *trainJob, view: view}})
		inttest.Reload(t, c, wl)
		expect.That(t, held.err == nil && held.done == tc.want, "ensureHeld() = %v; want it to be changed: %t", held, tc.want)
		expect.Same(t, "The Workload has our finalizer", tc.wantOurs, controllerutil.ContainsFinalizer(wl, placeholder.Finalizer))
		expect.Same(t, "The Workload has the finalizer", tc.want, controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName))
	})
}

// jobframework compares containers and tolerations, and starts a job whose prebuilt Workload has those.
func TestPrebuiltWorkloadHasWhatTheJobIsChargedFor(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*kueue.PodSet), bool]{
		"the same":              {In: func(*kueue.PodSet) {}, Want: true},
		"other pods":            {In: func(ps *kueue.PodSet) { ps.Count++ }},
		"ranks left out":        {In: func(ps *kueue.PodSet) { ps.TopologyRequest = nil }, Want: true},
		"another topology":      {In: func(ps *kueue.PodSet) { ps.TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("block")} }},
		"another runtime class": {In: func(ps *kueue.PodSet) { ps.Template.Spec.RuntimeClassName = new("slim") }},
	}, func(t *testing.T, tc expect.Row[func(*kueue.PodSet), bool]) {
		stored, _ := disagreeing(true, false, false, time.Now())
		r, _ := newReconciler(t, kit.With(stored, prebuilt))
		wl := createDescribed(t, r, stored, func(wl *kueue.Workload) { tc.In(&wl.Spec.PodSets[0]) })
		got := expect.Must(jobOf(t, r, stored).PodSets(t.Context(), nil))(t)
		expect.Same(t, "jobframework takes the Workload for the job's", tc.Want, equality.ComparePodSetSlices(got, wl.Spec.PodSets))
	})
}

func TestClaimsForOthers(t *testing.T) {
	claims := func(owners ...metav1.OwnerReference) *kueue.Workload {
		wl := kit.Workload("ns", "wl", "q", time.Time{}, kit.PodSet("node", 1))
		wl.OwnerReferences = owners
		wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("own")}}
		return wl
	}
	pod, job := metav1.OwnerReference{Kind: "Pod", UID: "p"}, metav1.OwnerReference{Kind: "TrainJob", UID: "uid"}
	without := claims(pod)
	without.Spec.PodSets[0].Template.Spec.ResourceClaims = nil
	expect.Answers(t, func(wl *kueue.Workload) bool {
		return claimsForOthers(&observed{TrainJob: *inttest.Job("uid")}, wl)
	}, map[string]expect.Row[*kueue.Workload, bool]{
		"one without owners":        {In: claims()},
		"the job's own":             {In: claims(job)},
		"one that others own, too":  {In: claims(pod, job), Want: true},
		"one that claims no device": {In: without},
	})
}

// Trainer tells of a Job that has succeeded also when it is on its way out, and JobSet runs it again then.
func TestReclaimablePodsAreOfJobsThatStay(t *testing.T) {
	given := []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	goes := func(child *batchv1.Job) { child.DeletionTimestamp = new(metav1.Now()) }
	type row struct {
		change func(*batchv1.Job)
		// behind is set where the cache has a Job that is gone.
		behind      bool
		given, want []kueue.ReclaimablePod
	}
	expect.Rows(t, map[string]row{
		"a child Job is complete":                         {want: given},
		"it is complete, and on its way out":              {change: goes},
		"it is gone, and another one runs":                {change: func(child *batchv1.Job) { child.Status.Conditions = nil }},
		"it is gone, and the cache has not heard of that": {behind: true},
		"it is of somebody else's JobSet":                 {change: func(child *batchv1.Job) { child.OwnerReferences[0].UID = "other" }},
		"somebody else names the JobSet":                  {change: func(child *batchv1.Job) { child.OwnerReferences[0].Kind = "X" }},
		"what was given is given, whatever goes":          {change: goes, given: given, want: given},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		job.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Succeeded: new(int32(1))}}
		js := inttest.JobSetOf(job, false, kit.ReplicatedJobs("node", 1)...)
		child := kit.ChildJob(js, "node", kit.Completed, tc.change)
		child.UID, child.Finalizers = "j", []string{metav1.FinalizerDeleteDependents}
		r, _ := newReconciler(t, job, js, child, inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.Status.ReclaimablePods = tc.given }))
		if tc.behind {
			r.deps.live = inttest.Fake(job, js).Build()
		}
		expect.Same(t, "Unexpected reclaimable pods", tc.want, expect.Must(jobOf(t, r, job).ReclaimablePods(t.Context(), nil))(t))
	})
}

func ofClass(name string) func(*trainjob.TrainJob) {
	return func(job *trainjob.TrainJob) { job.Labels[kit.PriorityLabel] = name }
}

func withoutQueue(job *trainjob.TrainJob) { job.Labels = nil }

// A label that jobframework stumbles over must not keep it from letting quota go.
func TestQuotaGoesBackWhateverTheLabelsSay(t *testing.T) {
	complete, failed := ended(trainer.TrainJobComplete), ended(trainer.TrainJobFailed)
	type row struct {
		runs bool
		job  func(*trainjob.TrainJob)
		wl   func(*kueue.Workload)
		// want is what becomes of the Workload.
		want string
	}
	expect.Rows(t, map[string]row{
		"complete, of a class that is not there":              {runs: true, job: kit.All(complete, ofClass("gone")), want: "finished"},
		"failed, of a class that is not there":                {job: kit.All(failed, ofClass("gone")), want: "finished"},
		"failed, without its queue":                           {job: kit.All(failed, withoutQueue), want: "finished"},
		"failed and preempted, without its queue":             {job: kit.All(failed, withoutQueue), wl: preempted, want: "finished"},
		"preempted, without its queue":                        {job: withoutQueue, wl: kit.All(preempted, deleted), want: "gone"},
		"its Workload is deleted, its class is not there":     {job: ofClass("gone"), wl: deleted, want: "gone"},
		"failed, its Workload is deleted, without its queue":  {job: kit.All(failed, withoutQueue), wl: deleted, want: "gone"},
		"suspended, its Workload is deleted, without a queue": {job: withoutQueue, wl: deleted, want: "gone"},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(!tc.runs, !tc.runs, !tc.runs, time.Now().Add(-time.Hour))
		kit.With(stored, tc.job)
		js.Status.TerminalState = trainer.TrainJobFailed
		wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
		wl.Spec.QueueName = "q"
		if stored.Labels[kit.PriorityLabel] != "" {
			wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef("low")
		}
		r, _ := newReconciler(t, stored, js, wl, kit.Priority("low", 1))
		said := saidOf(r)
		for range 4 {
			// What came of a write is not seen before the next look.
			_, _ = look(t, r, jobKey)
		}
		got := "kept"
		if !inttest.Exists(t, r.deps.client, wl) {
			got = "gone"
		} else if strings.Contains(strings.Join(*said, " "), kueue.WorkloadFinished+" True") {
			got = "finished"
		}
		expect.Same(t, "Unexpected Workload", tc.want, got)
	})
}

// What waits for a queue goes by the one that it names now.
func TestQueueOfWhatHoldsQuota(t *testing.T) {
	type row struct {
		runs bool
		job  func(*trainjob.TrainJob)
		wl   func(*kueue.Workload)
		want string
	}
	expect.Rows(t, map[string]row{
		"it runs":                         {runs: true, want: "q"},
		"it has failed":                   {job: ended(trainer.TrainJobFailed), want: "q"},
		"its Workload is deleted":         {wl: deleted, want: "q"},
		"its Workload is deactivated":     {wl: kit.Deactivated, want: "q"},
		"it is about to start":            {},
		"it waits for admission checks":   {wl: kit.Isnt(kueue.WorkloadAdmitted, "")},
		"it was preempted and has queued": {wl: preempted},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(!tc.runs, !tc.runs, !tc.runs, time.Now())
		kit.With(stored, kit.All(withoutQueue, tc.job))
		wl := inttest.WorkloadOf(stored, kit.Admitted, kit.Held, tc.wl)
		wl.Spec.QueueName = "q"
		r, _ := newReconciler(t, stored, js, wl)
		j := jobOf(t, r, stored)
		expect.NoError(t, alignWithWorkload(t.Context(), j).err)
		expect.Same(t, "Unexpected queue", tc.want, j.Labels[kit.QueueLabel])
	})
}

// Kueue refuses to have it back.
func TestAdmissionGateIsNotBroughtBack(t *testing.T) {
	const gate = "kueue.x-k8s.io/admission-gated-by"
	for want, says := range map[string]func(*kueue.Workload){"": giveQuota, "example.com/gate": nil} {
		stored, js := suspendedJob()
		stored.Annotations = map[string]string{gate: "example.com/gate"}
		r, _ := newReconciler(t, stored, js, inttest.WorkloadOf(stored, says))
		j := jobOf(t, r, stored)
		expect.NoError(t, alignWithWorkload(t.Context(), j).err)
		expect.Same(t, "Unexpected annotations", map[string]string{gate: want}, j.Annotations)
	}
}

// jobframework leaves an elastic job running that is not admitted.
func TestElasticJobIsStopped(t *testing.T) {
	stored, js := disagreeing(false, false, false, time.Now().Add(-time.Minute))
	stored.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	r, _ := newReconciler(t, stored, js)
	for range 3 {
		_, _ = look(t, r, jobKey)
	}
	expect.That(t, storedJob(t, r).Suspended(), "It runs without quota")
}

// jobframework looks for a class that is new to a Workload before it does anything else.
func TestKeepPriority(t *testing.T) {
	type row struct {
		named string
		// starts is set where the job waits, and its Workload is admitted.
		starts bool
		// charged is the class of the job's Workload; nil: it has none.
		charged  *string
		want     string
		wantTold string
	}
	expect.Rows(t, map[string]row{
		"a class that is there":                       {named: "there", charged: new("low"), want: "there"},
		"one that is not":                             {named: "gone", charged: new("low"), want: "low", wantTold: `PriorityClassMissing keeps the priority that it has, if any: workloadpriorityclasses.kueue.x-k8s.io "gone" not found`},
		"one that is not, of a job that starts":       {named: "gone", charged: new("low"), starts: true, want: "gone"},
		"one that was deleted since":                  {named: "gone", charged: new("gone"), want: "gone"},
		"one that is not, of a job without":           {named: "gone", charged: new(""), wantTold: "PriorityClassMissing"},
		"one that is not, of a job without Workload":  {named: "gone", want: "gone"},
		"no class at all, where the Workload has one": {charged: new("low")},
	}, func(t *testing.T, tc row) {
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
		got := keepPriority(t.Context(), j)
		expect.NoError(t, got.err)
		// No event tells of a class that comes.
		expect.Same(t, "It looks again", tc.wantTold != "", got.again > 0)
		expect.Same(t, "jobframework sees another class", tc.want, j.Labels[kit.PriorityLabel])
		expect.Same(t, "The TrainJob is written", tc.named, storedJob(t, r).Labels[kit.PriorityLabel])
		wantTold(t, eventsSoFar(recorder, "Warning"), tc.wantTold)
	})
}

// Kueue orders its queue by the Workload, not by the pods.
func TestTakePodSets(t *testing.T) {
	low, high, kueues := kueue.NewPodPriorityClassRef("low"), kueue.NewPodPriorityClassRef("high"), kueue.NewWorkloadPriorityClassRef("there")
	type row struct {
		// former is the class of the pods that the Workload has, and now that of those that it gets.
		former, now  string
		ref          *kueue.PriorityClassRef
		priority     int32
		labeled      bool
		wantRef      *kueue.PriorityClassRef
		wantPriority int32
		wantErr      bool
	}
	expect.Rows(t, map[string]row{
		"another class":                      {former: "low", now: "high", ref: low, priority: 1, wantRef: high, wantPriority: 9},
		"a first class":                      {now: "high", wantRef: high, wantPriority: 9},
		"no class any more":                  {former: "high", ref: high, priority: 9},
		"a class that is not there":          {former: "low", now: "gone", ref: low, priority: 1, wantErr: true},
		"a former class that is not there":   {former: "gone", now: "high", ref: low, priority: 1, wantRef: low, wantPriority: 1},
		"the same class, of another value":   {former: "high", now: "high", ref: high, priority: 5, wantRef: high, wantPriority: 5},
		"what an admin has set":              {former: "low", now: "high", ref: low, priority: 7, wantRef: low, wantPriority: 7},
		"a WorkloadPriorityClass of its own": {former: "low", now: "high", ref: kueues, priority: 3, wantRef: kueues, wantPriority: 3},
		"a label that is not followed yet":   {former: "low", now: "high", ref: low, priority: 1, labeled: true, wantRef: low, wantPriority: 1},
	}, func(t *testing.T, tc row) {
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

// Pods beyond the quota would run as soon as it is resumed. Where that is what Trainer makes of the job now, it queues for it.
func TestNoStartOfAJobSetThatAsksForMore(t *testing.T) {
	type row struct {
		jobSet func(*jobsetapi.JobSet)
		// pods are those of the JobSet. By its runtime, the TrainJob has one.
		pods, charged int32
		requeued      bool
	}
	expect.Rows(t, map[string]row{
		"it has more pods than its TrainJob":        {pods: 2, charged: 1},
		"it takes any pods for its own":             {pods: 1, charged: 1, jobSet: func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[0].Template.Spec.ManualSelector = new(true) }},
		"its TrainJob asks for another number, too": {pods: 3, charged: 2, requeued: true},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		js := kit.With(inttest.JobSetOf(stored, true, kit.ReplicatedJobs("node", 1)...), tc.jobSet)
		js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = &tc.pods
		r, _ := newReconciler(t, stored, js)
		wl := createDescribed(t, r, stored, kit.Admitted, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = tc.charged })
		j := jobOf(t, r, stored)
		err := j.RunWithPodSetsInfo(t.Context(), nil, nil)
		expect.That(t, errors.Is(err, errOutdated) && j.IsSuspended(), "RunWithPodSetsInfo() = %v", err)
		expect.Same(t, "The JobSet is to be made again", !tc.requeued, j.decision.excess != "")
		expect.Same(t, "It queues again", tc.requeued, !inttest.Exists(t, r.deps.client, wl))
	})
}
