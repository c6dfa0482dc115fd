// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// many are jobs that wait in the same queue, the first one longest.
func many(names ...string) (jobs []*trainjob.TrainJob, objects []client.Object) {
	s := newScene()
	objects = s.objects()
	for n, name := range names {
		job := s.Job.DeepCopyObject().(*trainjob.TrainJob)
		wl := waitingWorkload(name, "gpus", 4, minutesAgo(30-n))
		job.Name, job.UID = name, wl.OwnerReferences[0].UID
		jobs, objects = append(jobs, job), append(objects, job, wl)
	}
	return jobs, objects
}

func TestReadAll(t *testing.T) {
	jobs, objects := many("z-first", "m-second", "a-third")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "of-another"}}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "team", Name: "told"},
		InvolvedObject: corev1.ObjectReference{Kind: "TrainJob", UID: jobs[1].UID}, Type: corev1.EventTypeWarning, Reason: "WriteRefused",
	}
	type row struct {
		harness harness
		want    map[string]Position
		unseen  []string
	}
	expect.Rows(t, map[string]row{
		"by somebody who sees all": {want: map[string]Position{
			"z-first":  {Place: 1, Pending: 3, Source: Computed},
			"m-second": {Place: 2, Pending: 3, Source: Computed, Ahead: []string{"team/z-first"}},
			"a-third":  {Place: 3, Pending: 3, Source: Computed, Ahead: []string{"team/m-second"}},
		}},
		"by somebody who sees a namespace, where Kueue answers": {harness: harness{
			forbidden: []string{"LocalQueue", "Workload", "Pod", "ClusterQueue", "ResourceFlavor", "Node"},
			visible:   []visibility.PendingWorkload{{ObjectMeta: metav1.ObjectMeta{Name: "trainjob-m-second"}, PositionInClusterQueue: 4}},
		}, want: map[string]Position{"m-second": {Place: 5, Source: Visibility}}},
		"by somebody who sees nothing but TrainJobs": {harness: harness{denied: []string{"WorkloadPriorityClass", "LocalQueue", "Workload", "Pod", "ClusterQueue", "JobSet", "Job", "Event"}},
			unseen: []string{jobSets, childJobs, inventory.Pods, inventory.Workloads, inventory.LocalQueues, "events"}},
	}, func(t *testing.T, tc row) {
		tc.harness.T, tc.harness.objects = t, slices.Concat(objects, []client.Object{pod, event})
		c := tc.harness.client()
		snapshot := expect.Must(ReadAll(t.Context(), c, "team"))(t)
		got := map[string]Position{}
		for _, f := range snapshot.Facts {
			if place := f.Place(); place != nil {
				got[f.Job.Name] = *place
			}
			expect.That(t, tc.unseen != nil || f.Workload != nil && len(f.Pods) == 0 && len(f.Warnings) > 0 == (f.Job.Name == "m-second"),
				"Unexpected facts of %s: %+v", f.Job.Name, f)
		}
		if tc.want == nil {
			tc.want = map[string]Position{}
		}
		expect.Same(t, "Unexpected positions", tc.want, got)
		expect.Same(t, "Unexpected kinds", tc.unseen, snapshot.Unseen)
	})
}

// TestOfWithoutJobSets is for who may not list JobSets: pods name theirs, which has the job's name. What Kueue says of the
// Workload is a warning, too.
func TestOfWithoutJobSets(t *testing.T) {
	s := newScene()
	s.Unseen = []string{jobSets}
	around := s.facts(t).Around
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm-node-0-0", Labels: map[string]string{jobsetapi.JobSetNameKey: "llm"}}}
	told := corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}, InvolvedObject: corev1.ObjectReference{UID: s.Workload.UID}, Reason: "SecondPassFailed"}
	snapshot := &Snapshot{Around: around, Workloads: s.inventory.Workloads, Pods: []corev1.Pod{pod}, Events: []corev1.Event{told}}
	f := snapshot.Of(s.Job)
	expect.Same(t, "Unexpected pods", snapshot.Pods, f.Pods)
	expect.Same(t, "Unexpected warnings", snapshot.Events, f.Warnings)
}

// TestOfAllDecidesInOnePlay has Kueue decide about all jobs as soon as it is asked about one.
func TestOfAllDecidesInOnePlay(t *testing.T) {
	s := newScene(taken("h100", 4), pending("other", 0, minutesAgo(1)))
	other := *s.Job.DeepCopyObject().(*trainjob.TrainJob)
	other.Name, other.UID = "other", "other-uid"
	around := s.facts(t).Around
	snapshot := &Snapshot{Around: around, Workloads: s.inventory.Workloads}
	all := snapshot.OfAll([]trainjob.TrainJob{*s.Job, other})
	expect.Same(t, "Unexpected reason", "QuotaInUse", StateOf(all[0]).Reason)
	expect.Same(t, "Unexpected number of decisions", 2, len(around.Cluster.decided))
}

// TestReadAllOfCopies has the Workload of a copy whether it is the copy's already or not.
func TestReadAllOfCopies(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*trainjob.TrainJob, *kueue.Workload), string]{
		"its own":                          {Want: "trainjob-llm"},
		"made for it, and not yet its own": {In: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.OwnerReferences = nil }, Want: "trainjob-llm"},
		"made for another": {In: func(job *trainjob.TrainJob, wl *kueue.Workload) {
			wl.OwnerReferences, job.Labels[kueueconstants.PrebuiltWorkloadLabel] = nil, "trainjob-other"
		}},
		"owned by another":  {In: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.OwnerReferences[0].UID = "other" }},
		"not of MultiKueue": {In: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.OwnerReferences, wl.Labels = nil, nil }},
	}, func(t *testing.T, tc expect.Row[func(*trainjob.TrainJob, *kueue.Workload), string]) {
		jobs, objects := many("llm")
		wl := objects[len(objects)-1].(*kueue.Workload)
		jobs[0].Labels[kueueconstants.PrebuiltWorkloadLabel] = wl.Name
		wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "multikueue"}
		if tc.In != nil {
			tc.In(jobs[0], wl)
		}
		snapshot := expect.Must(ReadAll(t.Context(), (&harness{T: t, objects: objects}).client(), "team"))(t)
		got := ""
		if wl := snapshot.Facts[0].Workload; wl != nil {
			got = wl.Name
		}
		expect.Same(t, "Unexpected Workload", tc.Want, got)
	})
}

// TestOverhead has pods of a RuntimeClass that takes a GPU beside those of the containers.
func TestOverhead(t *testing.T) {
	kata := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: kit.GPUResources("1").Limits}}
	runtime := strings.Replace(fill(runtimeYAML, "ClusterTrainingRuntime", "2"), "containers:", "runtimeClassName: kata, containers:", 1)
	type row struct {
		harness harness
		preview bool
		want    int64
	}
	expect.Rows(t, map[string]row{
		"read by somebody who sees all":               {want: 36},
		"read by somebody who sees a namespace":       {harness: harness{forbidden: []string{"Workload"}}, want: 36},
		"of a manifest":                               {preview: true, want: 18},
		"read by somebody who sees no RuntimeClasses": {harness: harness{denied: []string{"RuntimeClass"}}, want: 32},
	}, func(t *testing.T, tc row) {
		_, objects := many("llm")
		objects[len(objects)-1].(*kueue.Workload).Spec.PodSets[0].Template.Spec.RuntimeClassName = &kata.Name
		h := &tc.harness
		h.T, h.objects = t, slices.Concat(objects, []client.Object{kata})
		var f *Facts
		if tc.preview {
			f = h.preview(runtime + "---\n" + fill(jobYAML, "ClusterTrainingRuntime", ""))
		} else {
			f = expect.Must(ReadAll(t.Context(), h.client(), "team"))(t).Facts[0]
		}
		expect.Same(t, "Unexpected GPUs", tc.want, f.GPUs()[kit.GPU])
		expect.That(t, !slices.ContainsFunc(f.Cluster.Unseen, func(kind string) bool { return strings.Contains(kind, "runtimeclasses") }), "RuntimeClasses are noted")
	})
}

// TestReadWhileItStarts has a job made and started between any two requests: it is never told as one that stops, nor as one
// that runs without a Workload.
func TestReadWhileItStarts(t *testing.T) {
	type reads func(context.Context, client.Client, *trainjob.TrainJob) (*Facts, error)
	expect.Rows(t, map[string]reads{
		"alone": Read,
		"among all": func(ctx context.Context, c client.Client, _ *trainjob.TrainJob) (*Facts, error) {
			all, err := ReadAll(ctx, c, "team")
			if err != nil {
				return nil, err
			}
			return all.Facts[0], nil
		},
	}, func(t *testing.T, read reads) {
		asked := math.MaxInt
		for at := 0; at < asked; at++ {
			s := newScene(admitted, withPods(4, runningPod))
			s.JobSet.OwnerReferences, s.Job.Spec.Suspend = s.Workload.OwnerReferences, new(true)
			h := &harness{T: t, objects: append(s.objects(), s.Job)}
			stored := h.client()
			asked = 0
			c := interceptor.NewClient(stored, kit.Refusing(func(any, client.ObjectKey) error {
				if asked++; asked == at+1 {
					job := s.Job.DeepCopy()
					job.Spec.Suspend = new(false)
					expect.NoError(t, stored.Update(t.Context(), job))
					expect.NoError(t, stored.Create(t.Context(), s.JobSet.DeepCopy()))
					expect.NoError(t, stored.Create(t.Context(), s.Workload.DeepCopy()))
				}
				return nil
			}))
			f := expect.Must(read(t.Context(), c, s.Job.DeepCopy()))(t)
			if state := StateOf(f); state.Phase == Stopping || state.Phase == Unqueued && !f.Job.Suspended() {
				t.Errorf("Started before request %d, it %s", at+1, state.Message)
			}
		}
	})
}

// TestReadAllAsksOnce holds the number of requests against the number of jobs. Webhooks tell where the manager is, and it where
// Kueue's configuration is.
func TestReadAllAsksOnce(t *testing.T) {
	requests := func(names ...string) (all, webhooks int) {
		_, objects := many(names...)
		count := interceptor.NewClient((&harness{T: t, objects: objects}).client(), kit.Refusing(func(object any, _ client.ObjectKey) error {
			all++
			if _, asks := object.(*admissionregistrationv1.MutatingWebhookConfiguration); asks {
				webhooks++
			}
			return nil
		}))
		expect.Must(ReadAll(t.Context(), count, "team"))(t)
		return all, webhooks
	}
	one, webhooks := requests("a")
	ten, _ := requests(strings.Split("abcdefghij", "")...)
	expect.That(t, one == ten, "%d requests for one job, %d for ten", one, ten)
	expect.Same(t, "Times that the manager is looked for", 1, webhooks)
}

// TestReadAllAsksWhereJobsWait counts what Kueue's visibility API is asked.
func TestReadAllAsksWhereJobsWait(t *testing.T) {
	type row struct {
		served bool // lets the API answer, with nothing
		change func(*kueue.Workload)
		want   []string
	}
	expect.Rows(t, map[string]row{
		"each queue, where it is served":      {served: true, want: []string{"a", "b"}},
		"no more than one, where it is not":   {want: []string{"a"}},
		"no queue in which jobs have quota":   {served: true, change: func(wl *kueue.Workload) { admit(wl, "gpus", "h100") }},
		"no queue in which all jobs are over": {served: true, change: func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadFinished, "", "", minutesAgo(1)) }},
	}, func(t *testing.T, tc row) {
		jobs, objects := many("a", "b")
		first := len(objects) - 2*len(jobs)
		for n := range jobs {
			wl := objects[first+2*n+1].(*kueue.Workload)
			jobs[n].Labels[kueueconstants.QueueLabel], wl.Spec.QueueName = jobs[n].Name, kueue.LocalQueueName(jobs[n].Name)
			objects = append(objects, new(localQueue(jobs[n].Name, "gpus")))
			kit.With(wl, tc.change)
		}
		h := &harness{T: t, objects: objects, forbidden: []string{"LocalQueue", "Workload", "Pod", "ClusterQueue"}}
		if tc.served {
			h.visible = []visibility.PendingWorkload{}
		}
		var asked []string
		c := interceptor.NewClient(h.client(), interceptor.Funcs{
			SubResourceGet: func(ctx context.Context, c client.Client, name string, of, into client.Object, _ ...client.SubResourceGetOption) error {
				asked = append(asked, of.GetName())
				return h.subResource(ctx, c, name, of, into)
			},
		})
		expect.Must(ReadAll(t.Context(), c, "team"))(t)
		expect.Same(t, "Unexpected questions", tc.want, asked)
	})
}

func TestTurns(t *testing.T) {
	shares := func(s *scene) {
		borrower(1)(s)
		s.inventory.ClusterQueues = append(s.inventory.ClusterQueues, clusterQueue("alone", "", quota("a100", "8")))
		s.inventory.LocalQueues = append(s.inventory.LocalQueues, localQueue("alone", "alone"))
		for _, other := range []struct{ job, queue string }{{"guest", "guests"}, {"lonely", "alone"}} {
			s.inventory.Workloads = append(s.inventory.Workloads, *waitingWorkload(other.job, other.queue, 1, minutesAgo(60)))
		}
	}
	s := newScene(shares, pending("second", 0, minutesAgo(1)))
	turns := expect.Must((&Snapshot{Facts: []*Facts{s.facts(t)}}).Turns(t.Context()))(t)
	want := map[types.UID]scheduler.Turn{
		"llm-workload": {Cohort: "all", Place: 1}, "guest-workload": {Cohort: "all", Place: 2}, "second-workload": {Cohort: "all", Place: 3},
		"lonely-workload": {Place: 1},
	}
	expect.Same(t, "Unexpected turns", want, turns, cmpopts.IgnoreFields(scheduler.Turn{}, "Workload", "ClusterQueue"))

	_, err := (&Snapshot{Facts: []*Facts{newScene(unseenKind(inventory.Workloads)).facts(t)}}).Turns(t.Context())
	expect.That(t, err != nil, "Turns among those that may not be seen")
}
