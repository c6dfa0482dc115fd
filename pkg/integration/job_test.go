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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		wl := inttest.WorkloadOf(stored)
		r, _ := newReconciler(t, kit.With(stored, prebuilt))
		wl.Spec.PodSets = expect.Must(jobOf(t, r, stored).describe(t.Context()))(t)
		tc.In(&wl.Spec.PodSets[0])
		expect.NoError(t, r.deps.client.Create(t.Context(), wl))
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
