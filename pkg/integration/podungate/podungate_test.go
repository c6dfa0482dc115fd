// SPDX-License-Identifier: Apache-2.0

package podungate

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestOnlyPodsOfAdmittedJobsAreFreed(t *testing.T) {
	type row struct {
		suspend bool
		wl      *kueue.Workload
		labels  map[string]string
		want    bool
	}
	expect.Rows(t, map[string]row{
		"its job is admitted and runs":      {wl: inttest.AdmittedOf("a"), want: true},
		"its job is suspended":              {suspend: true, wl: inttest.AdmittedOf("a")},
		"its job waits":                     {wl: inttest.WorkloadOf(inttest.Job("a"))},
		"its job is evicted":                {wl: inttest.AdmittedOf("a", kit.Is(kueue.WorkloadEvicted, ""))},
		"a former job of that name has run": {wl: inttest.AdmittedOf("b")},
		"it is of no JobSet":                {wl: inttest.AdmittedOf("a"), labels: map[string]string{"a": "b"}},
		"it is of another job":              {wl: inttest.AdmittedOf("a"), labels: map[string]string{jobsetapi.JobSetNameKey: "other"}},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		job.Spec.Suspend = new(tc.suspend)
		if tc.labels == nil {
			tc.labels = map[string]string{jobsetapi.JobSetNameKey: "llm"}
		}
		pod := inttest.PodOf("team", "llm", func(pod *corev1.Pod) { pod.Labels = tc.labels })
		c := inttest.Fake(job, tc.wl).Build()
		admitted, _, err := (&Controller{Client: c}).admittedJob(t.Context(), pod)
		expect.That(t, err == nil && (admitted != nil) == tc.want, "admittedJob() = %v, %v; want one: %t", admitted, err, tc.want)
	})
}

// Labels say of which TrainJob a pod is; whose it is, the UIDs of its owners.
func TestOnlyPodsOfAJobsOwnAreFreed(t *testing.T) {
	ofJobSet := func(uid types.UID) *batchv1.Job {
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "j"}}
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: jobsetapi.SchemeGroupVersion.String(), Kind: "JobSet", Name: "llm", UID: uid, Controller: new(true)}}
		return child
	}
	js := func(job *trainjob.TrainJob) *jobsetapi.JobSet { return inttest.JobSetOf(job, false) }
	type row struct {
		child  *batchv1.Job
		jobSet *jobsetapi.JobSet
		want   bool
	}
	expect.Rows(t, map[string]row{
		"its Job is of the TrainJob's JobSet":     {child: ofJobSet("js"), jobSet: js(inttest.Job("a")), want: true},
		"its Job is somebody's own":               {child: kit.With(ofJobSet("js"), func(j *batchv1.Job) { j.OwnerReferences = nil }), jobSet: js(inttest.Job("a"))},
		"its Job is of another JobSet":            {child: ofJobSet("other"), jobSet: js(inttest.Job("a"))},
		"the JobSet is of a former TrainJob":      {child: ofJobSet("js"), jobSet: js(inttest.Job("former"))},
		"the JobSet is somebody's own":            {child: ofJobSet("js"), jobSet: kit.With(js(inttest.Job("a")), func(js *jobsetapi.JobSet) { js.OwnerReferences = nil })},
		"another Job of that name has come since": {child: kit.With(ofJobSet("js"), func(j *batchv1.Job) { j.UID = "next" }), jobSet: js(inttest.Job("a"))},
	}, func(t *testing.T, tc row) {
		view := state.View{JobSet: tc.jobSet, Jobs: []batchv1.Job{*tc.child}}
		expect.Same(t, "The pod is made from the Job of the TrainJob", tc.want, madeFrom(view, inttest.Job("a"), inttest.PodOf("team", "llm")) != nil)
	})
}

// scene is TrainJob team/llm, which runs on pool h100, and a pod of it that its Job made a moment before.
type scene struct {
	job     *trainjob.TrainJob
	runtime *trainer.ClusterTrainingRuntime
	child   *batchv1.Job
	pod     *corev1.Pod
}

func newScene(t *testing.T, served trainjob.TrainerVersion) *scene {
	t.Helper()
	s := &scene{job: inttest.Job("a"), runtime: inttest.Runtime()}
	s.job.Spec.RuntimeRef.Name = s.runtime.Name
	place(t, s, served, patch.Placement{Name: "node", NodeSelector: map[string]string{"pool": "h100"}})
	s.child = kit.ChildJob(inttest.JobSetOf(s.job, false), "node", func(j *batchv1.Job) { j.UID = "j" })
	s.pod = inttest.PodOf("team", "llm", func(pod *corev1.Pod) {
		pod.Labels = map[string]string{jobsetapi.JobSetNameKey: "llm", jobsetapi.ReplicatedJobNameKey: "node", patch.GatedLabel: "true"}
		pod.Spec = corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}
	})
	return s
}

func place(t *testing.T, s *scene, served trainjob.TrainerVersion, placements ...patch.Placement) {
	t.Helper()
	patch.Of(served).Set(&s.job.Spec, placements)
}

// selecting has the pods of a template go to a pool.
func selecting(pool string, specs ...*corev1.PodSpec) {
	for _, spec := range specs {
		spec.NodeSelector = map[string]string{"pool": pool}
	}
}

func TestGatedPodIsFreedForItsPlacement(t *testing.T) {
	type row struct {
		change func(t *testing.T, s *scene)
		served trainjob.TrainerVersion
		// pool is where the pod may go; empty: it stays as it is. told is what its user is told.
		pool, told string
	}
	expect.Rows(t, map[string]row{
		"a pod of a job that runs":    {pool: "h100", told: "its gate is removed"},
		"one that Trainer 2.1 placed": {served: trainjob.Trainer21, pool: "h100", told: "its gate is removed"},
		"its replicated job goes elsewhere than the first": {pool: "a100", told: "its gate is removed", change: func(t *testing.T, s *scene) {
			first := s.runtime.Spec.Template.Spec.ReplicatedJobs[0].DeepCopy()
			first.Name = "first"
			s.runtime.Spec.Template.Spec.ReplicatedJobs = append([]jobsetapi.ReplicatedJob{*first}, s.runtime.Spec.Template.Spec.ReplicatedJobs...)
			place(t, s, trainjob.Trainer23, patch.Placement{Name: "first", NodeSelector: map[string]string{"pool": "h100"}},
				patch.Placement{Name: "node", NodeSelector: map[string]string{"pool": "a100"}})
		}},
		"the job is still at the gate": {change: func(t *testing.T, s *scene) { place(t, s, trainjob.Trainer23, patch.Gated("node")) }},
		"the job has no placement":     {change: func(_ *testing.T, s *scene) { s.job.Spec.RuntimePatches = nil }},
		"the pod is of a former flavor": {told: "not part of the current admission",
			change: func(_ *testing.T, s *scene) { selecting("a100", &s.pod.Spec, &s.child.Spec.Template.Spec) }},
		"its Job is not known yet": {change: func(_ *testing.T, s *scene) { s.child.UID = "next" }},
		"it is somebody's own":     {change: func(_ *testing.T, s *scene) { s.pod.OwnerReferences = nil }},
		"it is being deleted":      {change: func(_ *testing.T, s *scene) { s.pod.Finalizers = []string{"example.com/mine"} }},
		"it is free already":       {change: func(_ *testing.T, s *scene) { s.pod.Spec.SchedulingGates = nil }},
	}, func(t *testing.T, tc row) {
		served := cmp.Or(tc.served, trainjob.Trainer23)
		s := newScene(t, served)
		if tc.change != nil {
			tc.change(t, s)
		}
		c := inttest.Fake(s.job, s.runtime, inttest.AdmittedOf("a"), inttest.JobSetOf(s.job, false), s.child, s.pod).Build()
		if len(s.pod.Finalizers) > 0 {
			expect.NoError(t, c.Delete(t.Context(), s.pod))
		}
		inttest.Reload(t, c, s.pod)
		want := s.pod.Spec.DeepCopy()
		if tc.pool != "" {
			want.SchedulingGates = nil
			selecting(tc.pool, want)
		}
		recorder := events.NewFakeRecorder(1)
		expect.Same(t, "Unexpected result", ctrl.Result{}, reconcileOnce(t, controllerOf(t, c, served, recorder), s.pod))
		inttest.Reload(t, c, s.pod)
		expect.Same(t, "The pod differs", *want, s.pod.Spec)

		told := ""
		if len(recorder.Events) > 0 {
			told = <-recorder.Events
		}
		expect.That(t, (told == "") == (tc.told == "") && strings.Contains(told, tc.told), "The user is told %q, want %q", told, tc.told)
	})
}

func controllerOf(t *testing.T, c client.Client, served trainjob.TrainerVersion, recorder events.EventRecorder) *Controller {
	t.Helper()
	return &Controller{
		Client: c, InTree: testenv.InTree(t, false), Trainer: testenv.Served(t, served), Describer: testenv.Describer(t, c),
		Recorder: jobevents.New(recorder), Metrics: inttest.Metrics(),
	}
}

func reconcileOnce(t *testing.T, u *Controller, pod *corev1.Pod) ctrl.Result {
	t.Helper()
	return expect.Must(u.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}))(t)
}

// All pods of a job are refused alike: it is told once, and each is tried again.
func TestWhoRefusesTheRemovalOfTheGateIsTold(t *testing.T) {
	s := newScene(t, trainjob.Trainer23)
	second := kit.With(s.pod.DeepCopy(), func(pod *corev1.Pod) { pod.Name = "llm-node-0-1" })
	c := inttest.Fake(s.job, s.runtime, inttest.AdmittedOf("a"), inttest.JobSetOf(s.job, false), s.child, s.pod, second).Build()
	recorder := events.NewFakeRecorder(4)
	u := controllerOf(t, c, trainjob.Trainer23, recorder)
	u.Client = kit.Writes(c, func(w kit.Write) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), w.Object.GetName(), errors.New("not here"))
	})
	for _, pod := range []*corev1.Pod{s.pod, second, s.pod, second} {
		_, err := u.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		expect.That(t, err != nil, "%s is tried again", pod.Name)
	}
	expect.Need(t, len(recorder.Events) == 1, "The user is told %d times, want once", len(recorder.Events))
	told := <-recorder.Events
	expect.That(t, strings.Contains(told, jobevents.ReasonUngateRefused) && strings.Contains(told, "not here"), "The user is told %q", told)
}

// What is unknown is not taken for "off", and no event says when it is known.
func TestGatedPodWaitsForWhatIsUnknown(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*Controller), time.Duration]{
		"whether Kueue looks after TrainJobs": {In: func(u *Controller) { u.InTree = peers.NewInTree(nil, "", nil, peers.NewTrainJobs(nil)) }, Want: retryUnansweredAfter},
		"which Trainer there is":              {In: func(u *Controller) { u.Trainer.Set(t.Context(), 0, errors.New("no CRD")) }, Want: retryUnknownAfter},
	}, func(t *testing.T, tc expect.Row[func(*Controller), time.Duration]) {
		s := newScene(t, trainjob.Trainer23)
		c := inttest.Fake(s.job, s.runtime, inttest.AdmittedOf("a"), inttest.JobSetOf(s.job, false), s.child, s.pod).Build()
		u := kit.With(controllerOf(t, c, trainjob.Trainer23, events.NewFakeRecorder(1)), tc.In)
		expect.Same(t, "It is looked at again", ctrl.Result{RequeueAfter: tc.Want}, reconcileOnce(t, u, s.pod))
		inttest.Reload(t, c, s.pod)
		expect.That(t, patch.HasAdmissionGate(s.pod.Spec.SchedulingGates), "It is freed")
	})
}

func TestWhichPodsAnEventConcerns(t *testing.T) {
	s := newScene(t, trainjob.Trainer23)
	other := kit.With(s.pod.DeepCopy(), func(pod *corev1.Pod) { pod.Name, pod.Labels[jobsetapi.JobSetNameKey] = "other-0", "other" })
	elsewhere := kit.With(s.pod.DeepCopy(), func(pod *corev1.Pod) { pod.Namespace = "elsewhere" })
	c := inttest.Fake(s.pod, other, elsewhere).Build()
	concerned := func(about client.Object) []ctrl.Request { return (&Controller{Client: c}).podsOf(t.Context(), about) }
	its := []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(s.pod)}}
	expect.Answers(t, concerned, map[string]expect.Row[client.Object, []ctrl.Request]{
		"its TrainJob":       {In: s.job, Want: its},
		"its JobSet":         {In: inttest.JobSetOf(s.job, false), Want: its},
		"its Workload":       {In: inttest.AdmittedOf("a"), Want: its},
		"its Job":            {In: s.child, Want: its},
		"a Workload of none": {In: &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm"}}},
	})
}
