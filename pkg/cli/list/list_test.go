// SPDX-License-Identifier: Apache-2.0

package list

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const clusterQueues = "clusterqueues.kueue.x-k8s.io"

var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func minutesAgo(n int) metav1.Time { return metav1.NewTime(now.Add(-time.Duration(n) * time.Minute)) }

// facts are of a job of 2 nodes with 8 GPUs each that waits in a queue with 8.
func facts(t *testing.T, unseen []string, changes ...func(*explain.Facts)) *explain.Facts {
	t.Helper()
	f := &explain.Facts{Around: explain.Around{Now: now, Field: patch.Of(trainjob.Trainer23)}, Job: &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "llm", UID: "llm", Labels: map[string]string{kit.QueueLabel: "gpus"},
	}}}
	f.Job.Spec.Suspend = new(true)
	f.Workload = kit.Workload("team", "trainjob-llm", "gpus", minutesAgo(5).Time, kit.PodSet("node", 2))
	f.Workload.Spec.Priority = new(int32(100))
	// What limits alone say counts, too.
	f.Workload.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = kit.Amounts("nvidia.com/gpu", "8")
	kit.With(f, changes...)
	if f.Workload != nil {
		f.PodSets = f.Workload.Spec.PodSets
	}
	i := &inventory.Inventory{LocalQueues: []kueue.LocalQueue{*kit.LocalQueue("team", "gpus", "pool")}}
	i.Unseen = append(i.Unseen, unseen...)
	if i.Saw(clusterQueues) {
		i.Flavors = []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}}
		i.ClusterQueues = []kueue.ClusterQueue{*kit.ClusterQueue("pool", kit.Quota{Flavor: "h100", GPUs: "8"})}
	}
	if f.Workload != nil && i.Saw(inventory.Workloads) {
		i.Workloads = []kueue.Workload{*f.Workload}
	}
	f.Cluster = expect.Must(explain.NewCluster(t.Context(), i))(t)
	return f
}

func podsUnseen(f *explain.Facts) { f.Unseen = []string{"pods"} }

// runs is the job admitted to h100 and resumed, with its JobSet and no pod to be seen.
func runs(ready int32) func(*explain.Facts) {
	return func(f *explain.Facts) {
		f.Job.Spec.Suspend = new(false)
		kit.With(f.Workload, kit.Admitted, kit.Since(minutesAgo(3).Time))
		f.Workload.Status.Admission = &kueue.Admission{ClusterQueue: "pool", PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "node", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{kit.GPU: "h100", corev1.ResourceCPU: "cpus"},
		}}}
		f.JobSet = &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: kit.ReplicatedJobs("node", 1)}}
		f.Job.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(ready)}}
	}
}

func ended(f *explain.Facts) {
	f.Job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: minutesAgo(5)}}
}

// dispatched is the job as the manager cluster of MultiKueue has it; its flavor there says nothing.
func dispatched(f *explain.Facts) {
	runs(0)(f)
	f.JobSet, f.Job.Spec.ManagedBy, f.Workload.Status.ClusterName = nil, new(kueue.MultiKueueControllerName), new("west")
	f.Workload.Status.Admission.PodSetAssignments[0].Flavors[kit.GPU] = "anything"
}

func in(w explain.Worker) func(*explain.Facts) {
	return func(f *explain.Facts) {
		dispatched(f)
		w.Cluster = "west"
		f.Workers = []explain.Worker{w}
	}
}

// withoutWorkload is the job of somebody who may not see Workloads.
func withoutWorkload(f *explain.Facts) { f.Workload, f.Unseen = nil, []string{inventory.Workloads} }

func TestLines(t *testing.T) {
	everything := []string{inventory.Workloads, clusterQueues}
	type row struct {
		unseen  []string
		change  func(*explain.Facts)
		want    string
		unknown []Unseen
		workers []UnseenWorker
	}
	expect.Rows(t, map[string]row{
		"a job that waits, and why": {want: "llm Waiting gpus - 16 100 1 5m ExceedsQuota"},
		"one that waits for a user who sees a namespace": {unseen: everything, want: "llm Waiting gpus - 16 100 <unknown> 5m <unknown>",
			unknown: []Unseen{{clusterQueues, []string{"reason"}}, {inventory.Workloads, []string{"position"}}}},
		"one that waits, with Kueue's answer for that user": {unseen: everything, change: func(f *explain.Facts) { f.Visible = &explain.Position{Place: 7} },
			want: "llm Waiting gpus - 16 100 7 5m <unknown>", unknown: []Unseen{{clusterQueues, []string{"reason"}}}},
		"one whose Workload may not be seen": {unseen: everything, change: withoutWorkload,
			want:    "llm <unknown> gpus <unknown> <unknown> <unknown> <unknown> - <unknown>",
			unknown: []Unseen{{inventory.Workloads, []string{"flavors", "gpus", "phase", "position", "priority", "reason"}}}},
		"one that is held, whose Workload may not be seen": {unseen: everything,
			change:  kit.All(withoutWorkload, func(f *explain.Facts) { f.Job.Labels[kit.QueueLabel] = trainjob.HeldQueue("gpus") }),
			want:    "llm Held gpus.held <unknown> <unknown> <unknown> - - <unknown>",
			unknown: []Unseen{{inventory.Workloads, []string{"flavors", "gpus", "priority", "reason"}}}},
		"one that has ended, whose Workload may not be seen": {unseen: everything, change: kit.All(withoutWorkload, ended),
			want: "llm Succeeded gpus <unknown> <unknown> <unknown> - 5m Done", unknown: []Unseen{{inventory.Workloads, []string{"flavors", "gpus", "priority"}}}},
		"one without a Workload": {change: func(f *explain.Facts) { f.Workload = nil }, want: "llm Unqueued gpus - - - - - NobodyReacts"},
		"one that runs, with the flavor of its GPUs, where pods may not be seen": {change: kit.All(runs(1), podsUnseen), want: "llm Running gpus h100 16 100 - 3m -"},
		"one that starts, where pods may not be seen":                            {change: kit.All(runs(0), podsUnseen), want: "llm Starting gpus h100 16 100 - 3m PodsNotReady"},
		"one that starts, where Jobs may not be seen": {change: kit.All(runs(0), func(f *explain.Facts) { f.Unseen = []string{"jobs.batch"} }),
			want: "llm Starting gpus h100 16 100 - 3m <unknown>", unknown: []Unseen{{"jobs.batch", []string{"reason"}}}},
		"one that runs in a worker, with its flavor there": {change: in(explain.Worker{Facts: facts(t, nil, runs(1), podsUnseen)}),
			want: "llm Running gpus h100 16 100 - 3m -"},
		"one that starts in a worker, where pods may not be seen": {change: in(explain.Worker{Facts: facts(t, nil, runs(0), podsUnseen)}),
			want: "llm Starting gpus h100 16 100 - 3m PodsNotReady"},
		"one in a worker where its Workload is gone": {change: in(explain.Worker{Facts: facts(t, nil, func(f *explain.Facts) { f.Workload = nil })}),
			want: "llm Unqueued gpus - 16 100 - - NobodyReacts"},
		"one in a worker where its Workload may not be seen": {change: in(explain.Worker{Facts: facts(t, nil, withoutWorkload)}),
			want:    "llm <unknown> gpus <unknown> 16 100 - - <unknown>",
			unknown: []Unseen{{"workloads.kueue.x-k8s.io in cluster west", []string{"flavors", "phase", "reason"}}}},
		"one in a worker of which nothing is known": {change: in(explain.Worker{Problem: errors.New("no context")}),
			want: "llm Elsewhere gpus <unknown> 16 100 - 3m InWorker", workers: []UnseenWorker{{Cluster: "west", Problem: "no context", TrainJobs: 1}}},
		"one that has ended in a worker": {change: kit.All(dispatched, ended), want: "llm Succeeded gpus <unknown> 16 100 - 5m Done"},
		"one that no worker has admitted yet": {change: kit.All(dispatched, func(f *explain.Facts) {
			f.Workload.Status.ClusterName, f.Workload.Status.NominatedClusterNames = nil, []string{"west", "east"}
		}), want: "llm Reserved gpus - 16 100 - 3m Dispatching"},
		"one without queue": {change: func(f *explain.Facts) { f.Workload, f.Job.Labels, f.Job.Spec.Suspend = nil, nil, nil },
			want: "llm NotManaged - - - - - - NoQueue"},
	}, func(t *testing.T, tc row) {
		f := facts(t, tc.unseen, tc.change)
		got := newList(&explain.Snapshot{Facts: []*explain.Facts{f}}, &query{}, nil, nil)
		cells := expect.Each(got.TrainJobs[0].row(show.Paint{}, now)[3:12], func(cell any) string { return fmt.Sprint(cell) }) // NAME to REASON
		expect.Same(t, "Unexpected line", tc.want, strings.Join(cells, " "))
		expect.Same(t, "Unexpected kinds", tc.unknown, got.Unseen)
		expect.Same(t, "Unexpected workers", tc.workers, got.Workers)
	})
}

func TestTable(t *testing.T) {
	jobs := []TrainJob{{
		Namespace: "team", Name: "mixed", State: explain.State{Phase: explain.Running, Reason: "Running", Message: "runs"}, Queue: "gpus", ClusterQueue: "pool",
		GPUs: map[corev1.ResourceName]int64{kit.GPU: 2, "nvidia.com/mig-1g.10gb": 3}, Flavors: []string{"a", "b"},
		Cluster: "west", User: "jane",
	}, {
		Namespace: "team", Name: "cpu", State: explain.State{Phase: explain.Failed, Reason: "JobsFailed"}, GPUs: map[corev1.ResourceName]int64{}, Nominated: []string{"west", "east"},
	}}
	var out strings.Builder
	expect.NoError(t, (&options{all: true, output: show.Wide}).table(jobs, show.Paint{}, now).Print(&out, show.Paint{}))
	want := `NAMESPACE   NAME    STATE     QUEUE   FLAVOR   GPUS              PRIORITY   POSITION   SINCE   REASON       CLUSTERQUEUE   CLUSTER      USER   STARTS   MESSAGE
team        mixed   Running   gpus    a,b      2,3 mig-1g.10gb   -          -          -       -            pool           west         jane   -        runs
team        cpu     Failed    -       -        0                 -          -          -       JobsFailed   -              west,east?   -      -        -
`
	expect.Same(t, "Unexpected table", want, out.String())
}

func TestNotAll(t *testing.T) {
	expect.Answers(t, func(in []Unseen) int { return exit.Code((&List{Unseen: in}).notAll()) }, map[string]expect.Row[[]Unseen, int]{
		"all is known":                    {},
		"whose they are is not":           {In: []Unseen{{configMaps, []string{"user"}}}},
		"why they wait is not":            {In: []Unseen{{clusterQueues, []string{"reason"}}}, Want: exit.Unseen},
		"neither is whose they are":       {In: []Unseen{{configMaps, []string{"user"}}, {clusterQueues, []string{"reason"}}}, Want: exit.Unseen},
		"of another kind, more than that": {In: []Unseen{{configMaps, []string{"reason", "user"}}}, Want: exit.Unseen},
		"what would tell is not there":    {In: []Unseen{{"the configuration of Kueue: there is none", []string{"reason"}}}},
	})
}

func TestNotes(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[Unseen, string]{
		"what jobs compete for": {In: Unseen{clusterQueues, []string{"reason"}},
			Want: "reason is <unknown>: you may not list all clusterqueues.kueue.x-k8s.io; ask an admin for ClusterRole kueue-trainer-queues-viewer"},
		"what is made of them": {In: Unseen{"jobs.batch in cluster west", []string{"phase", "reason"}},
			Want: "phase, reason is <unknown>: you may not list jobs.batch in cluster west; ask an admin for ClusterRole kueue-trainer-user"},
		"what no role of users has": {In: Unseen{configMaps, []string{"user"}},
			Want: "user is <unknown>: you may not list configmaps of namespace kueue-trainer-system; ask an admin for that"},
		"what is not there": {In: Unseen{noConfiguration, []string{"user"}},
			Want: "user is <unknown>: the configuration of kueue-trainer: namespace kueue-trainer-system has no ConfigMap kueue-trainer-config that can be read; ask an admin to put that right"},
	}, func(t *testing.T, tc expect.Row[Unseen, string]) {
		streams, _, _, errOut := genericiooptions.NewTestIOStreams()
		(&options{streams: streams, output: show.JSON}).tell(List{Unseen: []Unseen{tc.In}})
		expect.Same(t, "Unexpected note", "note: "+tc.Want+"\n", errOut.String())
	})
}

// TestDocuments has a list that is followed be a stream of YAML.
func TestDocuments(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &options{streams: streams, output: show.YAML}
	expect.NoError(t, o.print(List{}))
	o.watching = &follow.Watching{}
	expect.NoError(t, o.print(List{}))
	expect.Same(t, "Unexpected documents", "trainJobs: null\n---\ntrainJobs: null\n", out.String())
}

func TestNews(t *testing.T) {
	job := func(name string, phase explain.Phase, message string) TrainJob {
		return TrainJob{Namespace: "team", Name: name, State: explain.State{Phase: phase, Message: message}}
	}
	last := List{TrainJobs: []TrainJob{job("same", explain.Running, "for 1s"), job("moved", explain.Waiting, ""), job("gone", explain.Running, "")}}
	next := List{TrainJobs: []TrainJob{job("same", explain.Running, "for 2s"), job("moved", explain.Running, ""), job("made", explain.Waiting, "")}}
	expect.Same(t, "Unexpected news", []TrainJob{job("moved", explain.Running, ""), job("made", explain.Waiting, "")}, news(last, next).TrainJobs)
}
