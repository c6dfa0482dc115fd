// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
)

func TestChain(t *testing.T) {
	workload := func(state, waitsFor string) Link {
		return Link{Depth: 1, Kind: "Workload", Name: "trainjob-llm", State: state, WaitsFor: waitsFor}
	}
	noJobSet := Link{Depth: 1, Kind: "JobSet", Name: "llm", State: "Missing", WaitsFor: "Trainer to make it"}
	jobSet := Link{Depth: 1, Kind: "JobSet", Name: "llm", State: "Resumed"}
	job := Link{Depth: 2, Kind: "Job", Name: "llm-node-0", State: "Active"}
	resumed := Link{Kind: "TrainJob", Name: "llm", State: "Resumed"}
	suspended := Link{Kind: "TrainJob", Name: "llm", State: "Suspended", WaitsFor: "the admission of its Workload"}
	eachScene(t, "chain", map[string]row[[]Link]{
		"just made": {
			scene: changes{withoutWorkload},
			want: []Link{
				{Kind: "TrainJob", Name: "llm", State: "Suspended", WaitsFor: "a Workload"},
				{Depth: 1, Kind: "Workload", Name: "-", State: "Missing", WaitsFor: "kueue-trainer to make it"}, noJobSet,
			},
		},
		"in a namespace that Kueue does not manage": {
			scene: changes{withoutWorkload, warned("NamespaceNotManaged", "names queue gpus")},
			want: []Link{
				{Kind: "TrainJob", Name: "llm", State: "Suspended"}, {Depth: 1, Kind: "Workload", Name: "-", State: "Missing"}, noJobSet,
			},
		},
		"stopped by its user": {
			scene: changes{taken("h100", 3), ofH100, admitted, func(s *scene) {
				s.Job.Spec.Suspend, s.Job.Labels["kueue.x-k8s.io/queue-name"] = ptr.To(true), "gpus.held"
			}},
			want: []Link{
				{Kind: "TrainJob", Name: "llm", State: "Suspended", WaitsFor: "the pods of its former run to go"}, workload("Admitted", ""), jobSet,
				{Depth: 2, Kind: "Job", Name: "llm-node-0", State: "Active", WaitsFor: "its pods to be made"},
			},
		},
		"waiting for quota": {
			scene: changes{taken("h100", 3), ofH100, admitted, func(s *scene) {
				s.Workload.Status = kueue.WorkloadStatus{}
				s.Job.Spec.Suspend, s.JobSet.Spec.Suspend, s.Jobs[0].Spec.Suspend = ptr.To(true), ptr.To(true), ptr.To(true)
			}},
			want: []Link{
				suspended, workload("Pending", "quota: QuotaInUse"),
				{Depth: 1, Kind: "JobSet", Name: "llm", State: "Suspended", WaitsFor: "its TrainJob to be resumed"},
				{Depth: 2, Kind: "Job", Name: "llm-node-0", State: "Suspended", WaitsFor: "its JobSet to be resumed"},
			},
		},
		"in a stopped queue": {scene: changes{queueHeld}, want: []Link{suspended, workload("Pending", "its queue: LocalQueueStopped"), noJobSet}},
		"waiting for an admission check": {
			scene: changes{reserved, checked("budget", kueue.CheckStatePending, "")},
			want:  []Link{suspended, workload("QuotaReserved", "admission check budget (Pending)"), noJobSet},
		},
		"pods of one Job in two states": {
			scene: changes{admitted, withPods(3, runningPod), withPods(1, func(p *corev1.Pod) {
				p.Name, p.Spec.SchedulingGates = "llm-node-0-3", []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
			})},
			want: []Link{
				resumed, workload("Admitted", ""), jobSet, job,
				{Depth: 3, Kind: "Pods", Name: "3 pods", State: "Running"},
				{Depth: 3, Kind: "Pods", Name: "1 pod", State: "Gated", WaitsFor: "AdmissionGate: scheduling gate kueue-trainer.dev/admission"},
			},
		},
		"a replicated job that depends on another": {
			scene: changes{admitted, func(s *scene) {
				s.JobSet.Spec.ReplicatedJobs = append(s.JobSet.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{
					Name: "launcher", DependsOn: []jobsetapi.DependsOn{{Name: "node", Status: jobsetapi.DependencyReady}},
				})
			}},
			want: []Link{
				resumed, workload("Admitted", ""), jobSet, {Depth: 2, Kind: "Job", Name: "llm-node-0", State: "Active", WaitsFor: "its pods to be made"},
				{Depth: 2, Kind: "Job", Name: "llm-launcher", State: "Missing", WaitsFor: "node to be Ready"},
			},
		},
		"a replicated job that has waited for another": {
			scene: changes{admitted, dependent},
			want: []Link{
				resumed, workload("Admitted", ""), jobSet, {Depth: 2, Kind: "Job", Name: "llm-node-0", State: "Complete"},
				{Depth: 2, Kind: "Job", Name: "llm-launcher", State: "Missing", WaitsFor: "JobSet to make it"},
			},
		},
		"evicted": {
			scene: changes{admitted, withPods(4, runningPod), evicted(kueue.WorkloadEvictedByPreemption, "")},
			want: []Link{
				{Kind: "TrainJob", Name: "llm", State: "Resumed", WaitsFor: "kueue-trainer to stop it"},
				workload("Evicted", "the pods of its former run to go"), jobSet, job,
				{Depth: 3, Kind: "Pods", Name: "4 pods", State: "Running"},
			},
		},
		"stopped, with pods on their way out": {
			scene: changes{admitted, withPods(4, runningPod), evicted(kueue.WorkloadEvictedByPreemption, ""), func(s *scene) { s.Job.Spec.Suspend = ptr.To(true) }},
			want: []Link{
				{Kind: "TrainJob", Name: "llm", State: "Suspended", WaitsFor: "the pods of its former run to go"},
				workload("Evicted", "the pods of its former run to go"), jobSet, job,
				{Depth: 3, Kind: "Pods", Name: "4 pods", State: "Running"},
			},
		},
		"a manifest has none": {scene: changes{func(s *scene) { s.Job.UID = "" }}},
	}, Chain, cmpopts.IgnoreFields(Link{}, "Pods"))
}
