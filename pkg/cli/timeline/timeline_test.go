// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var begin = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// at is a time to the second, and micro one to the microsecond.
func at(seconds int) metav1.Time {
	return metav1.NewTime(begin.Add(time.Duration(seconds) * time.Second))
}

func micro(millis int) metav1.MicroTime {
	return metav1.NewMicroTime(begin.Add(time.Duration(millis)*time.Millisecond + time.Microsecond))
}

func event(kind, name, reason, message string, millis int) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Reason: reason, Message: message, EventTime: micro(millis)}
}

// complete is a job that waited 2 s, ran twice and was preempted between.
func complete() *Facts {
	f := &Facts{Now: begin.Add(time.Hour), Gated: true, Job: &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "llm", CreationTimestamp: at(0),
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl-create", Time: &metav1.Time{Time: begin}}, {Manager: "kueue-trainer", Time: &metav1.Time{Time: begin.Add(time.Second)}},
			{Manager: "kubectl-label", Time: &metav1.Time{Time: begin.Add(3 * time.Second)}},
		},
	}}}
	f.Job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Message: "all done", LastTransitionTime: at(60)}}
	f.JobSet = &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "llm", CreationTimestamp: at(0)}}
	f.Jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Name: "llm-node-0", CreationTimestamp: at(0)}}}
	f.Workloads = []kueue.Workload{*kit.With(kit.Workload("team", "wl", "", at(1).Time), kit.Admitted, kit.Since(at(40).Time))}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "llm-node-0-0-00new", CreationTimestamp: at(41), Labels: map[string]string{batchv1.JobNameLabel: "llm-node-0"}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(44), FinishedAt: at(59)}}}}
	f.Pods = []corev1.Pod{pod}
	f.Events = []corev1.Event{
		event("JobSet", "llm", "SuspendedJobs", "jobset is suspended", 100),
		event("Workload", "wl", "QuotaReserved", "in gpus", 3100), event("Workload", "wl", "Admitted", "by gpus", 3200),
		event("TrainJob", "llm", "Started", "on h100", 3900),
		event("Job", "llm-node-0", "SuccessfulCreate", "Created pod: llm-node-0-0-00old", 4000),
		event("Pod", "llm-node-0-0-00old", "Scheduled", "to a", 5000), event("Pod", "llm-node-0-0-00old", "Started", "", 10000),
		event("Workload", "wl", "EvictedDueToPreempted", "by urgent", 20000), event("Pod", "llm-node-0-0-00old", "Killing", "", 21000),
		event("Workload", "wl", "Pending", "8 more needed", 22500),
		event("Workload", "wl", "QuotaReserved", "in gpus", 40100), event("Workload", "wl", "Admitted", "by gpus", 40200),
		event("TrainJob", "llm", "Started", "on a100", 40900),
	}
	return f
}

// lines are the steps, each with its time, who did it and in which worker.
func lines(of Timeline) []string {
	return expect.Each(of.Steps, func(s Step) string {
		return fmt.Sprintf("%s %s | %s | %s", after(begin, s.Time), strings.TrimSpace(string(s.Actor)+" "+s.Cluster), s.Object, s.Step)
	})
}

func spent(of Timeline) map[Phase]int {
	seconds := map[Phase]int{}
	for _, span := range of.Spans {
		seconds[span.Phase] = int(span.Seconds + 0.5)
	}
	return seconds
}

func told(of Timeline, is milestone) map[string]int {
	count := map[string]int{}
	for _, s := range of.Steps {
		if s.milestone == is {
			count[s.Cluster]++
		}
	}
	return count
}

func TestOf(t *testing.T) {
	got := Of(complete())
	want := []string{
		"0s user | TrainJob llm | created it (kubectl-create)",
		"0s webhook | TrainJob llm | suspended it and put it behind the admission gate",
		"0s Trainer | JobSet llm | made it",
		"0s JobSet | Job llm-node-0 | made it",
		"100ms JobSet | JobSet llm | SuspendedJobs: jobset is suspended",
		"1s kueue-trainer | Workload wl | made it",
		"3s user | TrainJob llm | changed it (kubectl-label)",
		"3.1s Kueue | Workload wl | QuotaReserved: in gpus",
		"3.2s Kueue | Workload wl | Admitted: by gpus",
		"3.9s kueue-trainer | TrainJob llm | Started: on h100",
		"4s Job controller | 1 pod of Job llm-node-0 | made it",
		"5s scheduler | 1 pod of Job llm-node-0 | bound it",
		"10s kubelet | 1 pod of Job llm-node-0 | started it",
		"20s Kueue | Workload wl | EvictedDueToPreempted: by urgent",
		"21s kubelet | 1 pod of Job llm-node-0 | ended it",
		"22.5s Kueue | Workload wl | Pending: 8 more needed",
		"40.1s Kueue | Workload wl | QuotaReserved: in gpus",
		"40.2s Kueue | Workload wl | Admitted: by gpus",
		"40.9s kueue-trainer | TrainJob llm | Started: on a100",
		"41s Job controller | 1 pod of Job llm-node-0 | made it",
		"44s kubelet | 1 pod of Job llm-node-0 | started it",
		"59s kubelet | 1 pod of Job llm-node-0 | ended it",
		"60s Trainer | TrainJob llm | reported it as Complete: all done",
	}
	expect.Same(t, "Unexpected steps", want, lines(got))
	wantSpent := map[Phase]int{Preparing: 1, WaitingForQuota: 20, WaitingForChecks: 0, Starting: 2, WaitingForPods: 9, Running: 26, Stopping: 3}
	expect.Same(t, "Unexpected spans", wantSpent, spent(got))
}

// runsInWest is a job of MultiKueue that waited 20 s for worker west, and ran there.
func runsInWest(gone bool) *Facts {
	there := complete()
	there.Job.CreationTimestamp, there.Job.ManagedFields, there.Job.Status.Conditions = at(23), nil, nil
	there.JobSet.CreationTimestamp, there.Jobs[0].CreationTimestamp, there.Workloads[0].CreationTimestamp = at(24), at(24), at(3)
	there.Workloads[0].Status.Conditions = nil
	there.Events = []corev1.Event{
		event("Workload", "wl", "Pending", "8 more needed", 4100), event("Workload", "wl", "QuotaReserved", "in gpus", 22100), event("Workload", "wl", "Admitted", "by gpus", 22200),
		event("JobSet", "llm", "SuspendedJobs", "jobset is suspended", 24300), event("TrainJob", "llm", "Started", "on h100", 25100),
		event("Job", "llm-node-0", "SuccessfulCreate", "Created pod: llm-node-0-0-00new", 26100), event("Pod", "llm-node-0-0-00new", "Started", "", 30100),
	}
	there.Pods = nil
	if gone {
		there.Job = &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm"}}
		there.JobSet, there.Workloads = nil, nil
		there.Jobs = jobsGone(there.Events, "llm", &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "node"}}}})
	}

	f := complete()
	f.Gated, f.Job.ManagedFields, f.JobSet, f.Jobs, f.Pods = false, nil, nil, nil, nil
	f.Workloads[0].Status.Conditions = nil
	f.Events = []corev1.Event{
		event("Workload", "wl", "QuotaReserved", "in gpus", 2100), event("Workload", "wl", "Admitted", "by gpus", 26200), event("TrainJob", "llm", "Started", "runs in cluster west", 26300),
	}
	f.Copies = []Copy{{Worker: Worker{Cluster: "west"}, Facts: there, last: true}}
	return f
}

func TestOfAJobInAWorker(t *testing.T) {
	all := []string{
		"0s user | TrainJob llm | created it", "1s kueue-trainer | Workload wl | made it", "2.1s Kueue | Workload wl | QuotaReserved: in gpus",
		"3s Kueue west | Workload wl | copied it from the manager cluster",
		"4.1s Kueue west | Workload wl | Pending: 8 more needed", "22.1s Kueue west | Workload wl | QuotaReserved: in gpus", "22.2s Kueue west | Workload wl | Admitted: by gpus",
		"23s Kueue west | TrainJob llm | copied it from the manager cluster", "23s webhook west | TrainJob llm | suspended it and put it behind the admission gate",
		"24s Trainer west | JobSet llm | made it", "24s JobSet west | Job llm-node-0 | made it", "24.3s JobSet west | JobSet llm | SuspendedJobs: jobset is suspended",
		"25.1s kueue-trainer west | TrainJob llm | Started: on h100",
		"26.1s Job controller west | 1 pod of Job llm-node-0 | made it",
		"26.2s Kueue | Workload wl | Admitted: by gpus",
		"26.3s kueue-trainer | TrainJob llm | Started: runs in cluster west",
		"30.1s kubelet west | 1 pod of Job llm-node-0 | started it",
		"60s Trainer | TrainJob llm | reported it as Complete: all done",
	}
	// Events tell the rest when the objects of the copy are gone.
	ofObjects := func(line string) bool { return slices.Contains([]string{"3s", "23s", "24s"}, strings.Fields(line)[0]) }
	expect.Rows(t, map[string][]string{"whose copy is there": all, "whose copy is gone": slices.DeleteFunc(slices.Clone(all), ofObjects)}, func(t *testing.T, want []string) {
		got := Of(runsInWest(len(want) < len(all)))
		expect.Same(t, "Unexpected steps", want, lines(got))
		wantSpent := map[Phase]int{Preparing: 1, WaitingForQuota: 1, WaitingForChecks: 20, Starting: 4, WaitingForPods: 4, Running: 30}
		expect.Same(t, "Unexpected spans", wantSpent, spent(got))
	})
}

// TestStatusOfACopy is about what Kueue copies from the worker: it was done once, there.
func TestStatusOfACopy(t *testing.T) {
	f := runsInWest(false)
	f.Copies[0].Facts.Job.Status.Conditions = f.Job.Status.Conditions
	last := Of(f).Steps[len(Of(f).Steps)-1]
	expect.That(t, last.Cluster == "west" && last.milestone == finished, "Unexpected last step %+v", last)
	expect.Same(t, "Unexpected times that its end is told", map[string]int{"west": 1}, told(Of(f), finished))
}

func TestSpansOfAJobThatWaits(t *testing.T) {
	f := complete()
	f.Now, f.Job.Status.Conditions, f.Workloads[0].Status.Conditions, f.Events, f.Pods = begin.Add(11*time.Second), nil, nil, nil, nil
	want := []Span{{Phase: Preparing, Seconds: 1, Share: 1.0 / 11}, {Phase: WaitingForQuota, Seconds: 10, Share: 10.0 / 11}}
	expect.Same(t, "Unexpected spans", want, Of(f).Spans)
}

// Kueue says that it waits right after the manager gave the quota back.
func TestBothTellOfQuotaThatIsFree(t *testing.T) {
	f := complete()
	f.Workloads[0].Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, LastTransitionTime: at(20)},
		{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, LastTransitionTime: at(22)},
	}
	var told []Actor
	for _, s := range Of(f).Steps {
		if s.milestone == quotaFree || s.milestone == waiting {
			told = append(told, s.Actor)
		}
	}
	expect.Same(t, "Unexpected actors", []Actor{Manager, Kueue}, told)
}

// Events that tell the same again within minutes are one, which notes when it was seen last.
func TestSpansOfAJobThatIsPreemptedTwiceInMinutes(t *testing.T) {
	f := complete()
	f.Now, f.Job.Status.Conditions, f.Workloads[0].Status.Conditions, f.Pods = begin.Add(100*time.Second), nil, nil, nil
	again := map[string]int{"EvictedDueToPreempted": 60000, "Pending": 62000, "QuotaReserved": 40100, "Admitted": 40200}
	f.Events = slices.DeleteFunc(f.Events, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "Pod" || e.Reason == "SuccessfulCreate" || again[e.Reason] != 0 && e.EventTime.After(micro(39000).Time)
	})
	for i := range f.Events {
		if last := again[f.Events[i].Reason]; last != 0 {
			f.Events[i].Series = &corev1.EventSeries{Count: 2, LastObservedTime: micro(last)}
		}
	}
	expect.Same(t, "Unexpected spans", map[Phase]int{Preparing: 1, WaitingForQuota: 58, WaitingForChecks: 0, Starting: 37, Stopping: 5}, spent(Of(f)))
}

// TestSpansOfAJobThatIsStopped has what a stop leaves told: no condition says any more that its pods ran.
func TestSpansOfAJobThatIsStopped(t *testing.T) {
	byHold := func(seconds int, queue string) func(*Facts) {
		return func(f *Facts) {
			f.Job.ManagedFields = append(f.Job.ManagedFields, metav1.ManagedFieldsEntry{Manager: trainjob.HoldFieldOwner, Time: ptr.To(at(seconds))})
			f.Job.Labels = map[string]string{kueueconstants.QueueLabel: queue}
		}
	}
	events := func(add ...corev1.Event) func(*Facts) { return func(f *Facts) { f.Events = append(f.Events, add...) } }
	runs := events(event("Workload", "wl", "QuotaReserved", "in gpus", 3100), event("Workload", "wl", "Admitted", "by gpus", 3200),
		event("Job", "llm-node-0", "SuccessfulCreate", "Created pod: llm-node-0-0-00old", 4000))
	stops := events(event("JobSet", "llm", "SuspendedJobs", "", 20100), event("TrainJob", "llm", "QueuedAgain", "", 22100))
	expect.Rows(t, map[string]expect.Row[[]func(*Facts), map[Phase]int]{
		"held while it waits": {In: []func(*Facts){byHold(20, "gpus.held")}, Want: map[Phase]int{Preparing: 1, WaitingForQuota: 19, Held: 80}},
		"stopped, and held since": {In: []func(*Facts){runs, stops, byHold(20, "gpus.held")},
			Want: map[Phase]int{Preparing: 1, WaitingForQuota: 2, WaitingForChecks: 0, Starting: 1, Started: 16, Stopping: 2, Held: 78}},
		"stopped, and resumed since": {In: []func(*Facts){runs, stops, byHold(50, "gpus")},
			Want: map[Phase]int{Preparing: 1, WaitingForQuota: 52, WaitingForChecks: 0, Starting: 1, Started: 16, Stopping: 2, Held: 28}},
		"preempted, then held and resumed": {In: []func(*Facts){runs, events(event("Workload", "wl", "EvictedDueToPreempted", "", 20050)), stops, byHold(50, "gpus")},
			Want: map[Phase]int{Preparing: 1, WaitingForQuota: 80, WaitingForChecks: 0, Starting: 1, Started: 16, Stopping: 2}},
		"stopped, of whose pods a kubelet told": {In: []func(*Facts){runs, events(event("Pod", "llm-node-0-0-00old", "Started", "", 10000)), stops, byHold(20, "gpus.held")},
			Want: map[Phase]int{Preparing: 1, WaitingForQuota: 2, WaitingForChecks: 0, Starting: 1, WaitingForPods: 6, Running: 10, Stopping: 2, Held: 78}},
		"deactivated while it waits": {In: []func(*Facts){events(event("Workload", "wl", "EvictedDueToDeactivated", "", 20000))}, Want: map[Phase]int{Preparing: 1, WaitingForQuota: 19, Deactivated: 80}},
		"deactivated while it runs, and activated again": {In: []func(*Facts){runs, events(event("Workload", "wl", "EvictedDueToDeactivated", "", 20000)), stops, func(f *Facts) {
			f.Workloads[0].Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue, Reason: kueue.WorkloadReactivated, LastTransitionTime: at(60)}}
		}}, Want: map[Phase]int{Preparing: 1, WaitingForQuota: 42, WaitingForChecks: 0, Starting: 1, Started: 16, Stopping: 2, Deactivated: 38}},
	}, func(t *testing.T, tc expect.Row[[]func(*Facts), map[Phase]int]) {
		f := complete()
		f.Now, f.Job.Status.Conditions, f.Workloads[0].Status.Conditions, f.Pods, f.Events = at(100).Time, nil, nil, nil, nil
		expect.Same(t, "Unexpected spans", tc.Want, spent(Of(kit.With(f, tc.In...))))
	})
}

func TestPodsTogether(t *testing.T) {
	f := complete()
	second := f.Pods[0].DeepCopy()
	second.Name, second.CreationTimestamp, second.Status = "llm-node-0-1-00new", at(42), corev1.PodStatus{}
	f.Pods = append(f.Pods, *second)
	var lines []string
	for _, s := range Of(f).Steps {
		if s.Object == "2 pods of Job llm-node-0" {
			lines = append(lines, s.Step)
		}
	}
	expect.Same(t, "Unexpected steps", []string{"made them", "started 1 of them", "ended 1 of them"}, lines)
}

// TestRestartsInPlace has a pod run from its first start on, as far as one is told of.
func TestRestartsInPlace(t *testing.T) {
	over := func(start, end int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(start), FinishedAt: at(end)}}
	}
	status := func(restarts int32, last, now corev1.ContainerState) func(*Facts) {
		return func(f *Facts) {
			f.Pods[0].Status = corev1.PodStatus{
				Conditions:        []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: at(43)}},
				ContainerStatuses: []corev1.ContainerStatus{{RestartCount: restarts, LastTerminationState: last, State: now}},
			}
		}
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	told := func(f *Facts) { f.Events = append(f.Events, event("Pod", "llm-node-0-0-00new", "Started", "", 46000)) }
	expect.Answers(t, func(in []func(*Facts)) (starts []string) {
		for _, s := range Of(kit.With(complete(), in...)).Steps {
			if s.milestone == podsRun {
				starts = append(starts, after(begin, s.Time))
			}
		}
		return starts
	}, map[string]expect.Row[[]func(*Facts), []string]{
		"none":                                  {In: []func(*Facts){status(0, corev1.ContainerState{}, over(45, 59))}, Want: []string{"10s", "45s"}},
		"one":                                   {In: []func(*Facts){status(1, over(45, 50), over(51, 59))}, Want: []string{"10s", "45s"}},
		"one that is due":                       {In: []func(*Facts){status(0, over(45, 50), waits)}, Want: []string{"10s", "45s"}},
		"one, and another is due":               {In: []func(*Facts){status(1, over(51, 55), waits)}, Want: []string{"10s", "43s"}},
		"one, and the pod has lost how it was":  {In: []func(*Facts){status(1, corev1.ContainerState{}, over(51, 59))}, Want: []string{"10s", "43s"}},
		"more":                                  {In: []func(*Facts){status(3, over(53, 54), over(55, 59))}, Want: []string{"10s", "43s"}},
		"more, and an event tells of the first": {In: []func(*Facts){status(3, over(53, 54), over(55, 59)), told}, Want: []string{"10s", "46s"}},
	})
}

func TestPodsThatTakeThePlaceOfOthers(t *testing.T) {
	expect.Rows(t, map[string]corev1.PodStatus{"and run": *complete().Pods[0].Status.DeepCopy(), "and do not run yet": {}}, func(t *testing.T, status corev1.PodStatus) {
		f := complete()
		next := f.Pods[0].DeepCopy()
		next.Name, next.CreationTimestamp, next.Status = "llm-node-0-0-next1", at(50), *status.DeepCopy()
		if len(status.ContainerStatuses) > 0 {
			next.Status.ContainerStatuses[0].State.Terminated.StartedAt = at(55)
		}
		f.Pods = append(f.Pods, *next)
		expect.Same(t, "Unexpected spans", spent(Of(complete())), spent(Of(f)))
	})
}

// TestPodsThatNeverRan has a run begin when there was a pod that ran in each place.
func TestPodsThatNeverRan(t *testing.T) {
	runs := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(52)}}}}}
	expect.Answers(t, func(other corev1.PodStatus) int {
		f := complete()
		f.Now, f.Job.Status.Conditions, f.Pods[0].Status = at(70).Time, nil, corev1.PodStatus{}
		second, next := f.Pods[0].DeepCopy(), f.Pods[0].DeepCopy()
		second.Name, second.Status = "llm-node-0-1-00two", other
		next.Name, next.CreationTimestamp, next.Status = "llm-node-0-0-next1", at(50), runs
		f.Pods = append(f.Pods, *second, *next)
		return spent(Of(f))[Running] - 10 // of the first run
	}, map[string]expect.Row[corev1.PodStatus, int]{
		"and one that does not run yet": {},
		"and one that runs":             {In: runs, Want: 18},
	})
}

func TestSVG(t *testing.T) {
	f := complete()
	f.Events[1].Message = "<script>&\"\x1b"
	timeline := Of(f)
	var pictures [2]strings.Builder
	for i := range pictures {
		expect.NoError(t, writeSVG(&pictures[i], &timeline, f.Now))
	}
	picture := pictures[0].String()
	expect.Same(t, "Unexpected second picture of the same", picture, pictures[1].String())
	marks, lanes := 0, 0
	for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		expect.NoError(t, err)
		if element, is := token.(xml.StartElement); is && element.Name.Local == "circle" {
			marks++
		} else if is && element.Name.Local == "rect" && strings.Contains(fmt.Sprint(element.Attr), "#cbd2d9") {
			lanes++
		}
	}
	expect.Same(t, "Unexpected marks and lanes", []int{len(timeline.Steps), len(actors)}, []int{marks, lanes})
	expect.That(t, !strings.Contains(picture, "<script>"), "A message is part of the document")
}

// TestPodsOfOthers is about a TrainJob whose name begins with that of a Job of this one.
func TestPodsOfOthers(t *testing.T) {
	f := complete()
	labelled := f.Pods[0].DeepCopy()
	labelled.Name = "llm-node-0-odd"
	f.Pods = append(f.Pods, *labelled)
	expect.Answers(t, func(in string) string { return jobOf(f, in) }, map[string]expect.Row[string, string]{
		"one that is gone":                       {In: "llm-node-0-12-x7k2p", Want: "llm-node-0"},
		"one that is there, of whatever name":    {In: "llm-node-0-odd", Want: "llm-node-0"},
		"one of a Job whose name begins alike":   {In: "llm-node-0-b-node-0-0-x7k2p"},
		"one of a Job whose name begins with 0-": {In: "llm-node-0-0-node-0-0-x7k2p"},
		"the Job of another replica":             {In: "llm-node-01-0-x7k2p"},
	})
	f = complete()
	want := Of(f).Steps
	f.Events = append(f.Events, event("Pod", "llm-node-0-b-node-0-0-x7k2p", "Scheduled", "to b", 6000))
	expect.Same(t, "Unexpected steps of another TrainJob", want, Of(f).Steps, cmp.AllowUnexported(Step{}))
}

// TestPodsOfAFormerTrainJob is about one of the same name, whose Jobs are not all gone yet.
func TestPodsOfAFormerTrainJob(t *testing.T) {
	f := complete()
	s := &explain.Snapshot{Around: explain.Around{Now: f.Now}, Jobs: slices.Clone(f.Jobs), Pods: slices.Clone(f.Pods)}
	former := s.Jobs[0].DeepCopy()
	former.Name, former.CreationTimestamp = "llm-launcher-0", at(-60)
	pod := s.Pods[0].DeepCopy()
	pod.Name, pod.CreationTimestamp = "llm-launcher-0-0-00old", at(-50)
	s.Jobs, s.Pods = append(s.Jobs, *former), append(s.Pods, *pod)
	got := factsOf(s, f.Job, f.Job.CreationTimestamp.Time, nil)
	expect.Same(t, "Unexpected Jobs", f.Jobs, got.Jobs)
	expect.Same(t, "Unexpected pods", f.Pods, got.Pods)
}

// A worker that was lost had the job before.
func TestOfAJobInTwoWorkers(t *testing.T) {
	f := runsInWest(false)
	former := runsInWest(true).Copies[0]
	former.Cluster, former.last = "east", false
	f.Copies = append([]Copy{former, {Worker: Worker{Cluster: "north", Problem: "no context"}}}, f.Copies...)
	got := Of(f)
	expect.Same(t, "Unexpected former workers", []Worker{{Cluster: "east"}, {Cluster: "north", Problem: "no context"}}, got.FormerWorkers)
	expect.That(t, got.Worker != nil && got.Worker.Cluster == "west", "The worker is %+v, want west", got.Worker)
	expect.Same(t, "Unexpected starts by cluster", map[string]int{"": 1, "east": 1, "west": 1}, told(got, started))
}

func TestGivenTo(t *testing.T) {
	starts := func(clusters ...string) []corev1.Event {
		var out []corev1.Event
		for i, name := range clusters {
			out = append(out, event("TrainJob", "llm", "Started", "Admitted from queue q by ClusterQueue gpus, and runs in cluster "+name, 1000*i))
		}
		return append(out, event("TrainJob", "llm", "Stopped", "runs in cluster nowhere", 0), event("Pod", "llm", "Started", "runs in cluster nowhere", 0))
	}
	type row struct {
		events   []corev1.Event
		assigned string
		want     []string
	}
	expect.Rows(t, map[string]row{
		"no worker yet":                 {events: starts()},
		"one, whose event is not there": {events: starts(), assigned: "west", want: []string{"west"}},
		"one":                           {events: starts("west"), assigned: "west", want: []string{"west"}},
		"another one before":            {events: starts("east", "west"), assigned: "west", want: []string{"east", "west"}},
		"back in the first one":         {events: starts("west", "east", "west"), assigned: "west", want: []string{"east", "west"}},
		"none any more":                 {events: starts("east", "west"), want: []string{"east", "west"}},
		"by an event of any order":      {events: slices.Concat(starts("east")[1:], []corev1.Event{starts("", "west")[1]}, starts("east")[:1]), want: []string{"east", "west"}},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected workers", tc.want, givenTo(tc.events, tc.assigned))
	})
}

// Tenants may create events, of any time.
func TestEventsOfTheFuture(t *testing.T) {
	f := &Facts{Now: at(60).Time, Job: complete().Job}
	told := []corev1.Event{event("TrainJob", "llm", "Started", "on h100", 3900), event("TrainJob", "llm", "Stopped", "by nobody", 3_000_000_000_000)}
	f.pickEvents(told, at(0).Time, nil)
	expect.Same(t, "Unexpected events", told[:1], f.Events)
}

func TestInOrderWithinASecond(t *testing.T) {
	is := func(of milestone, millis int) Step {
		return Step{Time: begin.Add(time.Duration(millis) * time.Millisecond), milestone: of}
	}
	expect.Rows(t, map[string]expect.Row[[]milestone, []milestone]{
		"a condition is behind what it follows from, though Kueue said before that it waits": {In: []milestone{resumed, waiting, quota, admitted, started}, Want: []milestone{waiting, quota, admitted, started, resumed}},
		"a condition of a start that was over within the second is before its end":           {In: []milestone{resumed, quota, admitted, started, evicted, quotaFree, quota}, Want: []milestone{quota, admitted, started, resumed, evicted, quotaFree, quota}},
		"an eviction is before the quota that is free by it":                                 {In: []milestone{evicted, quotaFree, quota}, Want: []milestone{evicted, quotaFree, quota}},
		"nothing is before the creation":                                                     {In: []milestone{created, noted, noted}, Want: []milestone{created, noted, noted}},
		"the end is behind what is noted of it":                                              {In: []milestone{finished, noted, noted}, Want: []milestone{noted, noted, finished}},
	}, func(t *testing.T, tc expect.Row[[]milestone, []milestone]) {
		var steps []Step
		for n, m := range tc.In {
			steps = append(steps, is(m, n*100)) // The first is to the second.
		}
		expect.Same(t, "Unexpected order", tc.Want, expect.Each(inOrder(steps), func(s Step) milestone { return s.milestone }))
	})
	expect.Same(t, "Unexpected time of what a clock that is behind notes", "0s", after(begin, begin.Add(-time.Millisecond)))
}

func TestUnseenSteps(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &options{streams: streams}
	expect.NoError(t, o.tellUnseen(&Facts{Copies: []Copy{{Worker: Worker{Cluster: "west", Problem: "no context"}}}}))
	expect.Same(t, "Unexpected notes", "note: the steps in worker cluster west are missing: no context\n", errOut.String())
	errOut.Reset()
	err := o.tellUnseen(&Facts{Unseen: []string{"pods", "events"}})
	expect.Says(t, err, "not all of it is known: you may not list pods, events")
	expect.Same(t, "Unexpected exit code", exit.Unseen, exit.Code(err))
	expect.Same(t, "Unexpected notes", "note: you may not list pods, so steps are missing; ask an admin for ClusterRole kueue-trainer-user\n"+
		"note: you may not list events, so steps are missing; ask an admin for ClusterRole kueue-trainer-user\n", errOut.String())
}
