// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// inWest is the job admitted in the manager cluster, and in worker west.
func inWest(s *scene) {
	elsewhereBy(s)
	admit(s.Workload, "gpus", "h100", kueue.WorkloadAdmitted)
	s.Job.Spec.Suspend = ptr.To(false)
	s.Workload.Status.ClusterName = ptr.To("west")
}

// asked is the job with quota in the manager cluster, for which workers are asked.
func asked(s *scene) {
	elsewhereBy(s)
	admit(s.Workload, "gpus", "h100")
	s.Workload.Status.NominatedClusterNames = []string{"west", "east"}
}

// there is a worker with the job as a scene of its own has it.
func there(t *testing.T, name string, copied bool, changes ...func(*scene)) func(*scene) {
	return func(s *scene) {
		s.Workers = append(s.Workers, Worker{Cluster: name, Context: name + "-admin", Copied: copied, Facts: newScene(changes...).facts(t)})
	}
}

func unknown(name string, problem error) func(*scene) {
	return func(s *scene) { s.Workers = append(s.Workers, Worker{Cluster: name, Problem: problem}) }
}

func unschedulablePods(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. no preemption"}}
}

func withoutRuntime(s *scene) {
	s.Undescribed = fmt.Errorf("ClusterTrainingRuntime torch: %w", trainjob.ErrRuntimeNotFound)
}

func TestStateInWorkers(t *testing.T) {
	const waits = "has quota in queue gpus (ClusterQueue gpus) and waits for a worker cluster to admit it: "
	cases := map[string]struct {
		scene []func(*scene)
		want  State
	}{
		"in a worker that was not looked into": {
			scene: []func(*scene){inWest},
			want:  State{Phase: Elsewhere, Reason: "InWorker", Message: "is in worker cluster west"},
		},
		"in a worker of no known context": {
			scene: []func(*scene){inWest, unknown("west", errors.New("no context: give --worker-context west=CONTEXT"))},
			want:  State{Phase: Elsewhere, Reason: "InWorker", Message: "is in worker cluster west; no context: give --worker-context west=CONTEXT"},
		},
		"in a worker that may not be looked into": {
			scene: []func(*scene){inWest, unknown("west", exit.With(exit.Unseen, errors.New("you may not")))},
			want:  State{Phase: Elsewhere, Reason: Unseen, Message: "is in worker cluster west; you may not"},
		},
		"running in a worker": {
			scene: []func(*scene){inWest, there(t, "west", true, admitted, withPods(4, runningPod))},
			want: State{Phase: Running, Reason: "Running",
				Message: "is in worker cluster west, where it runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100"},
		},
		"without room for its pods in a worker": {
			scene: []func(*scene){inWest, there(t, "west", true, admitted, withPods(4, unschedulablePods))},
			want: State{Phase: Starting, Reason: "Unschedulable", Stuck: true,
				Message: "is in worker cluster west, where it was started (node on flavor h100), and 4 pods of Job llm-node-0: Unschedulable (0/4 nodes are available: 4 Insufficient nvidia.com/gpu)",
				Remedy:  "in cluster west (--context west-admin): the quota is more than the nodes have room for: kubectl trainjob pools shows both"},
		},
		"evicted in the manager cluster": {
			scene: []func(*scene){inWest, func(s *scene) { setCondition(s.Workload, kueue.WorkloadEvicted, "Preempted", "", minutesAgo(1)) }},
			want:  State{Phase: Stopping, Reason: "Preempted", Message: "was preempted"},
		},
		"before any worker is asked": {
			scene: []func(*scene){asked, unasked, func(s *scene) { s.Now = minutesAgo(2).Time }},
			want: State{Phase: Reserved, Reason: "AdmissionCheckPending",
				Message: "has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: admission check workers is Pending"},
		},
		"while no worker is asked": {
			scene: []func(*scene){asked, unasked},
			want: State{Phase: Reserved, Reason: "NotDispatched", Stuck: true, Remedy: "see that a worker cluster is connected: kubectl get multikueueclusters",
				Message: "has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: admission check workers is Pending, and Kueue has asked no worker cluster"},
		},
		"while workers are asked that were not looked into": {
			scene: []func(*scene){asked},
			want:  State{Phase: Reserved, Reason: "Dispatching", Message: waits + "west; east"},
		},
		"while it waits in each worker": {
			scene: []func(*scene){asked, there(t, "west", false, taken("h100", 4)), unknown("east", fmt.Errorf("%w of it", cluster.ErrNoCopy))},
			want: State{Phase: Reserved, Reason: "Dispatching", Remedy: "in cluster west (--context west-admin): " + waitOrRise,
				Message: waits + "in west it waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100 has 0 of 32 GPUs free; flavor a100 has 16 GPUs at the most for it, 1st of 1 pending; east has not been asked yet"},
		},
		"while no worker has its runtime": {
			scene: []func(*scene){asked, there(t, "west", false, admitted, withoutRuntime), there(t, "east", false, admitted, withoutRuntime)},
			want: State{Phase: Reserved, Reason: "Dispatching", Stuck: true, Remedy: "in cluster west (--context west-admin): create the runtime as it is in the manager cluster",
				Message: waits + "in west it is admitted (node on flavor h100) and cannot be copied: ClusterTrainingRuntime torch: runtime not found; in east it is admitted (node on flavor h100) and cannot be copied: ClusterTrainingRuntime torch: runtime not found"},
		},
		"admitted in a worker, and not copied": {
			scene: []func(*scene){asked, there(t, "west", false, admitted), unknown("east", errors.New("no answer"))},
			want: State{Phase: Reserved, Reason: "Dispatching",
				Message: waits + "in west it was admitted (node on flavor h100) 2m ago and is not copied: the log of Kueue in the manager cluster says why; east (no answer)"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := StateOf(newScene(tc.scene...).facts(t))
			kit.Same(t, "state", tc.want, got, cmpopts.IgnoreFields(State{}, "Since", "Cause"))
		})
	}
}

// unasked is a job that MultiKueue asks no worker for.
func unasked(s *scene) {
	s.Workload.Status.NominatedClusterNames = nil
	s.Workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "workers", State: kueue.CheckStatePending}}
	s.inventory.AdmissionChecks = []kueue.AdmissionCheck{activeCheck("workers")}
}

func TestChainInWorkers(t *testing.T) {
	cases := map[string]struct {
		scene []func(*scene)
		want  []string
	}{
		"waiting for quota here": {
			scene: []func(*scene){elsewhereBy, taken("h100", 4)},
			want:  []string{"TrainJob llm Suspended: the admission of its Workload", "  Workload trainjob-llm Pending: quota: QuotaInUse"},
		},
		"in a worker that is not known": {
			scene: []func(*scene){inWest},
			want:  []string{"TrainJob llm Resumed", "  Workload trainjob-llm Admitted", "  Cluster west Assigned"},
		},
		"in a worker": {
			scene: []func(*scene){inWest, there(t, "west", true, admitted, withPods(4, runningPod))},
			want: []string{
				"TrainJob llm Resumed", "  Workload trainjob-llm Admitted", "  Cluster west Assigned", "    TrainJob llm Resumed", "      Workload trainjob-llm Admitted",
				"      JobSet llm Resumed", "        Job llm-node-0 Active", "          Pods 4 pods Running",
			},
		},
		"while workers are asked": {
			scene: []func(*scene){asked, there(t, "west", false, taken("h100", 4))},
			want: []string{
				"TrainJob llm Suspended: the admission of its Workload", "  Workload trainjob-llm QuotaReserved", "  Cluster west Nominated: it to admit the job",
				"    TrainJob llm Missing: MultiKueue to copy it", "      Workload trainjob-llm Pending: quota: QuotaInUse", "  Cluster east Nominated: it to admit the job",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range Chain(newScene(tc.scene...).facts(t)) {
				line := fmt.Sprintf("%s%s %s %s", strings.Repeat("  ", l.Depth), l.Kind, l.Name, l.State)
				if l.WaitsFor != "" {
					line += ": " + l.WaitsFor
				}
				got = append(got, line)
			}
			kit.Same(t, "chain", tc.want, got)
		})
	}
}

func TestExplainInAWorker(t *testing.T) {
	f := newScene(inWest, there(t, "west", true, admitted, withPods(4, unschedulablePods))).facts(t)
	e := Explain(f)
	if len(e.Workers) != 1 || e.Workers[0].Explanation == nil {
		t.Fatalf("Unexpected workers %+v", e.Workers)
	}
	if got := e.Workers[0].Explanation; "in cluster west (--context west-admin): "+got.State.Remedy != e.State.Remedy || len(got.Flavors) == 0 || len(got.Chain) != 5 {
		t.Errorf("Unexpected explanation %+v", got)
	}
	e = Explain(newScene(inWest, unknown("west", errors.New("no answer"))).facts(t))
	kit.Same(t, "workers", []WorkerExplanation{{Cluster: "west", Problem: "no answer"}}, e.Workers)
}
