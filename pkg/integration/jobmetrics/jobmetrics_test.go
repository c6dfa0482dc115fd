// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// jobOf returns a TrainJob in queue "queue" that waits.
func jobOf(name string) *trainjob.TrainJob {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{kueueconstants.QueueLabel: "queue"},
	}}
	job.Spec.Suspend = new(true)
	return job
}

func workloadOf(job *trainjob.TrainJob, conditions ...string) *kueue.Workload {
	wl := inttest.WorkloadOf(job)
	for _, condition := range conditions {
		kit.Is(condition, condition)(wl)
	}
	return wl
}

// What names a queue in vain is in no queue; what got quota before counts to its end.
func TestCountOfUnmanagedNamespaces(t *testing.T) {
	outside, holds, inside := jobOf("outside"), jobOf("holds"), jobOf("inside")
	inside.Namespace = "managed"
	seen := &view{jobs: trainjob.List{Items: []trainjob.TrainJob{*outside, *holds, *inside}},
		workloads: kueue.WorkloadList{Items: []kueue.Workload{*workloadOf(holds, kueue.WorkloadQuotaReserved)}}}
	c := &Counts{Managed: func(_ context.Context, namespace string) (bool, error) { return namespace == "managed", nil }}
	states, _ := seen.count(expect.Must(c.unmanaged(t.Context(), seen))(t), func(types.UID) string { return "" }, metrics.QueueLabels{})
	counted := 0
	for _, n := range states {
		counted += n
	}
	expect.Same(t, "Unexpected number of TrainJobs", 2, counted)
}

// A job that failed keeps its queue when its JobSet has gone, and with that what Trainer said.
func TestEndedJobsDoNotCount(t *testing.T) {
	type row struct {
		change func(*trainjob.TrainJob)
		// workloads of the job; nil: one that waits.
		workloads []func(*kueue.Workload)
		want      int
	}
	marked := func(job *trainjob.TrainJob) {
		job.Annotations = map[string]string{"kueue-trainer.dev/ended": string(job.UID)}
	}
	over := kit.Is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed)
	outOfSync := kit.Is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonOutOfSync)
	expect.Rows(t, map[string]row{
		"its Workload says so":                    {workloads: []func(*kueue.Workload){over}},
		"its Workload is gone, too":               {change: marked},
		"it was resumed":                          {change: func(job *trainjob.TrainJob) { marked(job); job.Spec.Suspend = new(false) }, want: 1},
		"another Workload of it waits":            {workloads: []func(*kueue.Workload){over, nil}, want: 1},
		"its Workload was finished without a run": {workloads: []func(*kueue.Workload){outOfSync}, want: 1},
	}, func(t *testing.T, tc row) {
		job := kit.With(jobOf("job"), tc.change)
		seen := &view{jobs: trainjob.List{Items: []trainjob.TrainJob{*job}}}
		for _, change := range tc.workloads {
			seen.workloads.Items = append(seen.workloads.Items, *kit.With(workloadOf(job), change))
		}
		states, stuck := seen.count(nil, func(types.UID) string { return "HasEnded" }, metrics.QueueLabels{})
		expect.That(t, len(states) == tc.want && len(stuck) == tc.want, "It counts: %v, %v", states, stuck)
	})
}

func TestStateOf(t *testing.T) {
	resumed := func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }
	readied := func(job *trainjob.TrainJob) {
		resumed(job)
		job.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(int32(1))}}
	}
	complete := func(job *trainjob.TrainJob) {
		job.Status.Conditions = []metav1.Condition{kit.True(trainer.TrainJobComplete, "")}
	}
	deleted := func(job *trainjob.TrainJob) { job.DeletionTimestamp = new(metav1.Now()) }
	elsewhere := func(job *trainjob.TrainJob) {
		readied(job)
		job.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
	}
	admitted := []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted}
	evicted := slices.Concat(admitted, []string{kueue.WorkloadEvicted})
	type row struct {
		change func(*trainjob.TrainJob)
		// conditions of the Workload; nil: there is none.
		conditions []string
		// suspended is of the JobSet; nil: there is none.
		suspended *bool
		want      string
	}
	expect.Rows(t, map[string]row{
		"nothing was made of it":              {want: "waiting_for_trainer"},
		"it has a Workload":                   {conditions: []string{}, suspended: new(true), want: "queued"},
		"quota is reserved, checks are to do": {conditions: admitted[:1], suspended: new(true), want: "queued"},
		"it is admitted":                      {conditions: admitted, suspended: new(true), want: "admitted"},
		"admitted before Trainer looked":      {conditions: admitted, want: "admitted"},
		"it is resumed":                       {change: resumed, conditions: admitted, suspended: new(true), want: "starting"},
		"its JobSet is resumed":               {change: resumed, conditions: admitted, suspended: new(false), want: "starting"},
		"its pods are ready":                  {change: readied, conditions: admitted, suspended: new(false), want: "running"},
		"its JobSet was deleted":              {change: readied, conditions: admitted, want: "starting"},
		"it is ready in another cluster":      {change: elsewhere, conditions: admitted, want: "running"},
		"it is evicted":                       {change: readied, conditions: evicted, suspended: new(false), want: "stopping"},
		"it is evicted and suspended":         {conditions: evicted, suspended: new(true), want: "stopping"},
		"its quota is given back":             {conditions: []string{kueue.WorkloadEvicted}, suspended: new(true), want: "queued"},
		"its user suspended it":               {conditions: admitted, suspended: new(false), want: "stopping"},
		"it has finished, pods are left":      {change: complete, conditions: admitted, suspended: new(false), want: "stopping"},
		"it has finished":                     {change: complete, conditions: append(admitted, kueue.WorkloadFinished), want: ""},
		"it is deleted, pods are left":        {change: deleted, conditions: admitted, suspended: new(false), want: "stopping"},
		"it is deleted":                       {change: deleted, want: ""},
	}, func(t *testing.T, tc row) {
		job := kit.With(jobOf("job"), tc.change)
		var wl *kueue.Workload
		if tc.conditions != nil {
			wl = workloadOf(job, tc.conditions...)
		}
		var js *jobsetapi.JobSet
		if tc.suspended != nil {
			js = inttest.JobSetOf(job, *tc.suspended, jobsetapi.ReplicatedJob{Name: "node", Replicas: 1})
		}
		expect.Same(t, "Unexpected phase", tc.want, state.PhaseOf(job, wl, js))
	})
}

func TestTell(t *testing.T) {
	free := jobOf("free")
	free.Labels = nil
	madeUp := jobOf("made-up")
	madeUp.Labels[kueueconstants.QueueLabel] = "not-there"
	moved := workloadOf(jobOf("b"), kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)
	moved.Status.Admission = &kueue.Admission{ClusterQueue: "former"}
	former := workloadOf(jobOf("a"), kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadFinished)
	former.Name = "former"
	gated := func(name string, gates ...string) *corev1.Pod {
		return inttest.PodOf("team", name, func(pod *corev1.Pod) {
			pod.Labels[patch.GatedLabel] = "true"
			for _, gate := range gates {
				pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
			}
		})
	}
	objects := []client.Object{
		jobOf("a"), jobOf("b"), jobOf("c"), free, madeUp,
		former, workloadOf(jobOf("a")), moved,
		kit.LocalQueue("team", "queue", "gpus"),
		gated("at-the-gate", patch.AdmissionGate), gated("freed"), gated("of-another", "example.com/gate"),
	}
	trouble := func(uid types.UID) string {
		return map[types.UID]string{"c": "CannotStart", "made-up": "NotAdmissible", "free": "NotAdmissible"}[uid]
	}
	told := func(namespace, queue string) []string {
		of := namespace + "," + queue + ","
		return []string{
			"kueue_trainer_gated_pods 1 ",
			"kueue_trainer_stuck_trainjobs 1 ," + namespace + ",,NotAdmissible",
			"kueue_trainer_stuck_trainjobs 1 gpus," + of + "CannotStart",
			"kueue_trainer_trainjobs 1 ," + namespace + ",,waiting_for_trainer",
			"kueue_trainer_trainjobs 1 former," + of + "admitted",
			"kueue_trainer_trainjobs 1 gpus," + of + "queued",
			"kueue_trainer_trainjobs 1 gpus," + of + "waiting_for_trainer",
		}
	}
	type row struct {
		labels metrics.QueueLabels
		leads  bool
		want   []string
	}
	expect.Rows(t, map[string]row{
		"another replica leads": {},
		"by LocalQueue":         {labels: metrics.QueueLabels{LocalQueues: true}, leads: true, want: told("team", "queue")},
		"by ClusterQueue":       {leads: true, want: told("", "")},
	}, func(t *testing.T, tc row) {
		leads := make(chan struct{})
		if tc.leads {
			close(leads)
		}
		c := &Counts{Cached: inttest.Fake(objects...).Build(), Leads: leads, StuckReason: trouble, Labels: tc.labels}
		var got []string
		c.Tell(func(m metrics.Metric, value float64, labels ...string) {
			got = append(got, fmt.Sprintf("%s %v %s", m.Name, value, strings.Join(labels, ",")))
		})
		slices.Sort(got)
		expect.Same(t, "Unexpected gauges", tc.want, got)
	})
}
