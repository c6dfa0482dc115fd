// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestChain(t *testing.T) {
	const (
		resumed    = "TrainJob llm Resumed"
		queues     = "TrainJob llm Suspended: the admission of its Workload"
		stops      = "TrainJob llm Suspended: the pods of its former run to go"
		hasQuota   = "  Workload trainjob-llm Admitted"
		lacksQuota = "  Workload trainjob-llm Pending: quota: QuotaInUse"
		evicts     = "  Workload trainjob-llm Evicted: the pods of its former run to go"
		noJobSet   = "  JobSet llm Missing: Trainer to make it"
		jobSet     = "  JobSet llm Resumed"
		job        = "    Job llm-node-0 Active"
		podsToCome = "    Job llm-node-0 Active: its pods to be made"
		fourRun    = "      Pods 4 pods Running"
	)
	evictedHere := changes{admitted, withPods(4, runningPod), evicted(kueue.WorkloadEvictedByPreemption, "")}
	eachScene(t, "chain", map[string]row[[]string]{
		"just made": {changes{withoutWorkload}, []string{"TrainJob llm Suspended: a Workload", "  Workload - Missing: kueue-trainer to make it", noJobSet}},
		"in a namespace that Kueue does not manage": {changes{withoutWorkload, warned("NamespaceNotManaged", "names queue gpus")},
			[]string{"TrainJob llm Suspended", "  Workload - Missing", noJobSet}},
		"stopped by its user": {changes{taken("h100", 3), ofH100, admitted, func(s *scene) {
			s.Job.Spec.Suspend, s.Job.Labels["kueue.x-k8s.io/queue-name"] = new(true), "gpus.held"
		}}, []string{stops, hasQuota, jobSet, podsToCome}},
		"waiting for quota": {changes{taken("h100", 3), ofH100, admitted, func(s *scene) {
			s.Workload.Status = kueue.WorkloadStatus{}
			s.Job.Spec.Suspend, s.JobSet.Spec.Suspend, s.Jobs[0].Spec.Suspend = new(true), new(true), new(true)
		}}, []string{queues, lacksQuota, "  JobSet llm Suspended: its TrainJob to be resumed", "    Job llm-node-0 Suspended: its JobSet to be resumed"}},
		"in a stopped queue": {changes{queueHeld}, []string{queues, "  Workload trainjob-llm Pending: its queue: LocalQueueStopped", noJobSet}},
		"waiting for an admission check": {changes{reserved, checked("budget", kueue.CheckStatePending, "")},
			[]string{queues, "  Workload trainjob-llm QuotaReserved: admission check budget (Pending)", noJobSet}},
		"pods of one Job in two states": {changes{admitted, withPods(3, runningPod), withPods(1, func(p *corev1.Pod) {
			p.Name, p.Spec.SchedulingGates = "llm-node-0-3", []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
		})}, []string{resumed, hasQuota, jobSet, job, "      Pods 3 pods Running",
			"      Pods 1 pod Gated: AdmissionGate (scheduling gate kueue-trainer.dev/admission)"}},
		"a replicated job that depends on another": {changes{admitted, func(s *scene) {
			s.JobSet.Spec.ReplicatedJobs = append(s.JobSet.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{
				Name: "launcher", DependsOn: []jobsetapi.DependsOn{{Name: "node", Status: jobsetapi.DependencyReady}},
			})
		}}, []string{resumed, hasQuota, jobSet, podsToCome, "    Job llm-launcher Missing: node to be Ready"}},
		"a replicated job that has waited for another": {changes{admitted, dependent},
			[]string{resumed, hasQuota, jobSet, "    Job llm-node-0 Complete", "    Job llm-launcher Missing: JobSet to make it"}},
		"evicted": {evictedHere, []string{"TrainJob llm Resumed: kueue-trainer to stop it", evicts, jobSet, job, fourRun}},
		"stopped, with pods on their way out": {append(evictedHere, func(s *scene) { s.Job.Spec.Suspend = new(true) }),
			[]string{stops, evicts, jobSet, job, fourRun}},
		"failed, and its JobSet is gone": {changes{placed, with(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed, "", 1)},
			[]string{"TrainJob llm Failed", "  Workload trainjob-llm Finished", "  JobSet llm Missing"}},
		"failed, and its JobSet was made again": {changes{admitted, markedEnded("llm-uid"), withoutWorkload, func(s *scene) {
			s.Job.Spec.Suspend, s.JobSet.Spec.Suspend, s.JobSet.Spec.ReplicatedJobs = new(true), new(true), nil
		}}, []string{"TrainJob llm Failed", "  Workload - Missing", "  JobSet llm Suspended"}},
		"a manifest has none":                         {scene: changes{func(s *scene) { s.Job.UID = "" }}},
		"of a job for other clusters that waits here": {changes{elsewhereBy, taken("h100", 4)}, []string{queues, lacksQuota}},
	}, func(f *Facts) []string {
		return expect.Each(Chain(f), func(l Link) string {
			return strings.TrimSuffix(fmt.Sprintf("%s%s %s %s: %s", strings.Repeat("  ", l.Depth), l.Kind, l.Name, l.State, l.WaitsFor), ": ")
		})
	})
}

// inWest is the job admitted in the manager cluster, and in worker west.
func inWest(s *scene) {
	elsewhereBy(s)
	placed(s)
	s.Job.Spec.Suspend = new(false)
	s.Workload.Status.ClusterName = new("west")
}

// asked is the job with quota in the manager cluster, for which workers are asked.
func asked(s *scene) {
	elsewhereBy(s)
	reserved(s)
	s.Workload.Status.NominatedClusterNames = []string{"west", "east"}
}

// there is a worker with the job as a scene of its own has it.
func there(t *testing.T, name string, copied bool, with ...func(*scene)) func(*scene) {
	return func(s *scene) {
		f := newScene(with...).facts(t)
		f.Uncopied = !copied
		s.Workers = append(s.Workers, Worker{Cluster: name, Context: name + "-admin", Facts: f})
	}
}

func unknown(name string, problem error) func(*scene) {
	return func(s *scene) { s.Workers = append(s.Workers, Worker{Cluster: name, Problem: problem}) }
}

var unschedulablePods = refusedBy("0/4 nodes are available: 4 Insufficient nvidia.com/gpu. no preemption")

func withoutRuntime(s *scene) {
	s.Undescribed = fmt.Errorf("ClusterTrainingRuntime torch: %w", trainjob.ErrRuntimeNotFound)
}

func TestStateInWorkers(t *testing.T) {
	const asks = "has quota in queue gpus (ClusterQueue gpus) and waits for a worker cluster to admit it: "
	eachScene(t, "state", map[string]row[State]{
		"in a worker that was not looked into": given(inWest).is(Elsewhere, "InWorker", "is in worker cluster west", ""),
		"in a worker of no known context": given(inWest, unknown("west", errors.New("no context: give --worker-context west=CONTEXT"))).is(
			Elsewhere, "InWorker", "is in worker cluster west; no context: give --worker-context west=CONTEXT", ""),
		"in a worker that may not be looked into": given(inWest, unknown("west", exit.With(exit.Unseen, errors.New("you may not")))).is(
			Elsewhere, Unseen, "is in worker cluster west; you may not", ""),
		"running in a worker": given(inWest, there(t, "west", true, admitted, withPods(4, runningPod))).is(Running, "Running",
			"is in worker cluster west, where it runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100", ""),
		"without room for its pods in a worker": given(inWest, there(t, "west", true, admitted, oneNodeLess, withPods(4, unschedulablePods))).stuck(
			Starting, "Unschedulable", "is in worker cluster west, where it was started (node on flavor h100), and 4 pods of Job llm-node-0: "+
				"Unschedulable (0/4 nodes are available: 4 Insufficient nvidia.com/gpu)",
			"in cluster west (--context west-admin): the quota is more than the nodes have room for: kubectl trainjob pools shows both"),
		"evicted in the manager cluster": given(inWest, evicted("Preempted", "")).is(Stopping, "Preempted", "was preempted", ""),
		"before any worker is asked":     given(asked, unasked, atOnce).is(Reserved, "AdmissionCheckPending", waitsForCheck+"workers is Pending", ""),
		"while no worker is asked": given(asked, unasked).stuck(Reserved, "NotDispatched",
			waitsForCheck+"workers is Pending, and Kueue has asked no worker cluster",
			"see that a worker cluster is connected: kubectl get multikueueclusters"),
		"while workers are asked that were not looked into": given(asked).is(Reserved, "Dispatching", asks+"west; east", ""),
		"while it waits in each worker": given(asked, there(t, "west", false, taken("h100", 4)), unknown("east", fmt.Errorf("%w of it", cluster.ErrNoCopy))).is(
			Reserved, "Dispatching", asks+"in west it waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, "+
				"flavor h100: 0 of 32 GPUs are free; flavor a100: ClusterQueue gpus has 16 GPUs at the most, 1st of 1 pending; east has not been asked yet",
			"in cluster west (--context west-admin): "+waitForEnd),
		"while no worker has its runtime": given(asked, there(t, "west", false, admitted, withoutRuntime), there(t, "east", false, admitted, withoutRuntime)).stuck(
			Reserved, "Dispatching", asks+"in west it is admitted (node on flavor h100) and cannot be copied: ClusterTrainingRuntime torch: runtime not found; in east it is admitted (node on flavor h100) and cannot be copied: ClusterTrainingRuntime torch: runtime not found",
			"in cluster west (--context west-admin): create the runtime as it is in the manager cluster"),
		"admitted in a worker, and not copied": given(asked, there(t, "west", false, admitted), unknown("east", errors.New("no answer"))).is(
			Reserved, "Dispatching", asks+"in west it was admitted (node on flavor h100) 2m ago and is not copied: the log of Kueue in the manager cluster says why; east (no answer)", ""),
	}, StateOf, cmpopts.IgnoreFields(State{}, "Since", "Cause"))
}

// unasked is a job that MultiKueue asks no worker for.
func unasked(s *scene) {
	s.Workload.Status.NominatedClusterNames = nil
	checked("workers", kueue.CheckStatePending, "")(s)
	s.inventory.AdmissionChecks = []kueue.AdmissionCheck{activeCheck("workers")}
}

func TestExplainInAWorker(t *testing.T) {
	f := newScene(inWest, there(t, "west", true, admitted, withPods(4, unschedulablePods))).facts(t)
	e := Explain(f)
	expect.Need(t, len(e.Workers) == 1 && e.Workers[0].Explanation != nil, "Unexpected workers %+v", e.Workers)
	got := e.Workers[0].Explanation
	expect.That(t, "in cluster west (--context west-admin): "+got.State.Remedy == e.State.Remedy && len(got.Flavors) != 0 && len(got.Chain) == 5,
		"Unexpected explanation %+v", got)
	e = Explain(newScene(inWest, unknown("west", errors.New("no answer"))).facts(t))
	expect.Same(t, "Unexpected workers", []WorkerExplanation{{Cluster: "west", Problem: "no answer"}}, e.Workers)
}
