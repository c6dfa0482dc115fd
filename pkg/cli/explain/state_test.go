// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

const (
	doctor     = "kubectl trainjob doctor"
	raiseOrCut = "ask for less (fewer nodes, or less per node), or raise the nominalQuota of flavor h100 in ClusterQueue gpus by "
	waitOrRise = "wait until others in ClusterQueue gpus have ended, or raise the job's priority (label kueue.x-k8s.io/priority-class) where the queue preempts"
)

const anotherWorkload = "put right what its message says, and create the TrainJob again, or delete its Workload, and it queues again with another: kubectl -n team delete workload trainjob-llm"

func TestStateOf(t *testing.T) {
	missing := fmt.Errorf("%w: there is no ClusterTrainingRuntime \"torch\"", trainjob.ErrRuntimeNotFound)
	gate := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: name}} }
	}
	cases := map[string]struct {
		scene []func(*scene)
		want  State
	}{
		"complete": {
			scene: []func(*scene){func(s *scene) {
				s.Job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: "True", Reason: "JobsCompleted", Message: "all jobs done"}}
			}},
			want: State{Phase: Succeeded, Reason: "JobsCompleted", Message: "is complete: all jobs done"},
		},
		"failed, with Trainer's message": {
			scene: []func(*scene){func(s *scene) {
				s.Job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobFailed, Status: "True", Reason: "FailedJobs", Message: "jobset failed"}}
			}},
			want: State{Phase: Failed, Reason: "FailedJobs", Message: "has failed: jobset failed"},
		},
		"of another controller": {
			scene: []func(*scene){func(s *scene) { s.Workload, s.Job.Spec.ManagedBy = nil, ptr.To("example.com/other") }},
			want:  State{Phase: NotManaged, Reason: "ManagedElsewhere", Message: "belongs to example.com/other (spec.managedBy), which may run it on another cluster"},
		},
		"for another cluster, without a queue": {
			scene: []func(*scene){elsewhereBy, withoutQueue},
			want:  State{Phase: NotManaged, Reason: "ManagedElsewhere", Message: "belongs to kueue.x-k8s.io/multikueue (spec.managedBy), which may run it on another cluster"},
		},
		"for another cluster, and nobody queues it": {
			scene: []func(*scene){elsewhereBy, func(s *scene) { s.Workload = nil }},
			want: State{Phase: Unqueued, Reason: "NobodyReacts", Stuck: true, Remedy: "see that kueue-trainer runs: kubectl trainjob doctor",
				Message: "asks for queue gpus and has no Workload after 5m: nobody queues it"},
		},
		"for another cluster, without quota yet": {
			scene: []func(*scene){elsewhereBy, taken("h100", 1)},
			want: State{Phase: Waiting, Reason: "QuotaInUse", Remedy: waitOrRise,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100 has 24 of 32 GPUs free; flavor a100 has 16 GPUs at the most for it, 1st of 1 pending"},
		},
		"its prebuilt Workload is missing": {
			scene: []func(*scene){prebuiltMissing},
			want: State{Phase: Unqueued, Reason: "PrebuiltMissing", Stuck: true, Remedy: "create Workload mine in namespace team like the TrainJob, and the job queues",
				Message: "is not queued: it names prebuilt Workload mine, which is not there or not its own"},
		},
		"its prebuilt Workload is not like it": {
			scene: []func(*scene){prebuiltMissing, warned("PrebuiltWorkloadUnusable", "prebuilt Workload mine is not what this TrainJob is")},
			want: State{Phase: Unqueued, Reason: "PrebuiltMissing", Stuck: true, Remedy: "create Workload mine in namespace team like the TrainJob, and the job queues",
				Message: "is not queued: prebuilt Workload mine is not what this TrainJob is"},
		},
		"its Workload was finished out of sync": {
			scene: []func(*scene){func(s *scene) {
				setCondition(s.Workload, kueue.WorkloadFinished, kueue.WorkloadFinishedReasonOutOfSync, "it is not like its job", minutesAgo(1))
			}},
			want: State{Phase: Deactivated, Reason: "OutOfSync", Stuck: true, Remedy: "delete Workload trainjob-llm and create it again like the TrainJob, and the job queues",
				Message: "gets no quota any more: its Workload trainjob-llm was finished without a run: it is not like its job"},
		},
		"its prebuilt Workload was finished out of sync, and in what it differs is told": {
			scene: []func(*scene){func(s *scene) {
				setCondition(s.Workload, kueue.WorkloadFinished, kueue.WorkloadFinishedReasonOutOfSync, "it is not like its job", minutesAgo(1))
			}, warned("PrebuiltWorkloadUnusable", "prebuilt Workload trainjob-llm is not what this TrainJob is: other containers")},
			want: State{Phase: Deactivated, Reason: "OutOfSync", Stuck: true, Remedy: "delete Workload trainjob-llm and create it again like the TrainJob, and the job queues",
				Message: "gets no quota any more: prebuilt Workload trainjob-llm is not what this TrainJob is: other containers"},
		},
		"its Workload was finished while it waits": {
			scene: []func(*scene){finishedByHand},
			want: State{Phase: Deactivated, Reason: "ByHand", Stuck: true, Remedy: "delete the TrainJob and create it again",
				Message: "gets no quota any more: its Workload trainjob-llm is finished, though the TrainJob is not: it was in the way"},
		},
		"its Workload was finished while it runs": {
			scene: []func(*scene){admitted, withPods(4, runningPod), finishedByHand},
			want: State{Phase: Stopping, Reason: "ByHand",
				Message: "is about to end: its Workload trainjob-llm is finished: it was in the way; 4 pods still there"},
		},
		"its JobSet cannot be made": {
			scene: []func(*scene){func(s *scene) { s.Workload = nil }, warned("TrainJobResourcesCreationFailed", "denied by policy")},
			want: State{Phase: Unqueued, Reason: "JobSetRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "is not queued: Trainer cannot make its JobSet: denied by policy"},
		},
		"its Jobs cannot be made": {
			scene: []func(*scene){func(s *scene) { s.Workload, s.JobSet = nil, &jobsetapi.JobSet{} }, warned("JobCreationFailed", "denied by policy")},
			want: State{Phase: Unqueued, Reason: "JobsRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "is not queued: JobSet cannot make its Jobs: denied by policy"},
		},
		"the latest refusal is told, and none from before the admission": {
			scene: []func(*scene){admitted, warned("FailedCreate", "denied by policy"), warned("HeadlessServiceCreationFailed", "at first"), func(s *scene) {
				s.Warnings[1].LastTimestamp = minutesAgo(2)
				s.Warnings = append(s.Warnings, corev1.Event{Reason: "JobCreationFailed", Message: "in the former run", LastTimestamp: minutesAgo(4)})
			}},
			want: State{Phase: Starting, Reason: "PodsRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "was started (node on flavor h100), and 4 pods not made yet; the Job controller cannot make its pods: denied by policy"},
		},
		"a refused Service that was made since": {
			scene: []func(*scene){admitted, warned("HeadlessServiceCreationFailed", "no Endpoints"), warned("PVCCreationFailed", "no storage"), func(s *scene) {
				s.Workload.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-patience / 2))
				s.Warnings[0].LastTimestamp, s.Warnings[1].LastTimestamp = metav1.NewTime(now), metav1.NewTime(now)
			}},
			want: State{Phase: Starting, Reason: "PodsMissing", Message: "was started (node on flavor h100), and 4 pods not made yet"},
		},
		"a refused Service before the Jobs are resumed": {
			scene: []func(*scene){admitted, warned("HeadlessServiceCreationFailed", "denied by policy"), func(s *scene) { s.Jobs[0].Spec.Suspend = ptr.To(true) }},
			want: State{Phase: Starting, Reason: "ServiceRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "was started (node on flavor h100), and 4 pods not made yet; JobSet cannot make its Service: denied by policy"},
		},
		"one of its Jobs cannot be made": {
			scene: []func(*scene){admitted, warned("JobCreationFailed", "denied by policy"), func(s *scene) { s.JobSet.Spec.ReplicatedJobs[0].Replicas = 2 }},
			want: State{Phase: Starting, Reason: "JobsRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "was started (node on flavor h100), and 5 pods not made yet; JobSet cannot make its Jobs: denied by policy"},
		},
		"a Job that waited for another cannot be made": {
			scene: []func(*scene){admitted, dependent, warned("JobCreationFailed", "denied by policy")},
			want: State{Phase: Starting, Reason: "JobsRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "was started (node on flavor h100), and 3 pods not made yet; JobSet cannot make its Jobs: denied by policy"},
		},
		"a JobSet that starts in order": {
			scene: []func(*scene){admitted, dependent, withPods(4, runningPod), func(s *scene) {
				s.Jobs[0].Status.Conditions, s.JobSet.Spec.ReplicatedJobs[1].DependsOn = nil, nil
				s.JobSet.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
			}},
			want: State{Phase: Running, Reason: "Running", Message: "runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100"},
		},
		"a Job that waited for another until now": {
			scene: []func(*scene){admitted, dependent, func(s *scene) { s.Jobs[0].Status.CompletionTime = ptr.To(metav1.NewTime(now)) }},
			want:  State{Phase: Starting, Reason: "PodsMissing", Message: "was started (node on flavor h100), and 3 pods not made yet"},
		},
		"a Job that waits for another, whose own was refused in a former run": {
			scene: []func(*scene){admitted, dependent, withPods(4, runningPod), warned("JobCreationFailed", "denied by policy"), func(s *scene) { s.Jobs[0].Status.Conditions = nil }},
			want:  State{Phase: Running, Reason: "Running", Message: "runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100"},
		},
		"a refusal of a former run": {
			scene: []func(*scene){admitted, warned("FailedCreate", "denied by policy"), func(s *scene) { s.Warnings[0].LastTimestamp = minutesAgo(4) }},
			want: State{Phase: Starting, Reason: "PodsMissing", Stuck: true, Remedy: "see what its Jobs say: kubectl -n team describe jobs -l jobset.sigs.k8s.io/jobset-name=llm",
				Message: "was started (node on flavor h100), and 4 pods not made yet"},
		},
		"its pods cannot be made": {
			scene: []func(*scene){admitted, warned("FailedCreate", "denied by policy")},
			want: State{Phase: Starting, Reason: "PodsRefused", Stuck: true, Remedy: refusedRemedy,
				Message: "was started (node on flavor h100), and 4 pods not made yet; the Job controller cannot make its pods: denied by policy"},
		},
		"its pods exceed a ResourceQuota": {
			scene: []func(*scene){admitted, warned("FailedCreate", "exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5")},
			want: State{Phase: Starting, Reason: "PodsRefused", Remedy: "wait until others in the namespace have ended, or raise the ResourceQuota that the message names",
				Message: "was started (node on flavor h100), and 4 pods not made yet; the Job controller cannot make its pods: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5"},
		},
		"its pods ask for more than a ResourceQuota has": {
			scene: []func(*scene){admitted, warned("FailedCreate", "exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0")},
			want: State{Phase: Starting, Reason: "PodsRefused", Stuck: true, Remedy: "raise the ResourceQuota that the message names: it has less in all than one pod asks for",
				Message: "was started (node on flavor h100), and 4 pods not made yet; the Job controller cannot make its pods: exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0"},
		},
		"a volume claim is missing": {
			scene: []func(*scene){admitted, withPods(4, refusedBy(`0/6 nodes are available: persistentvolumeclaim "data" not found. preemption: none`))},
			want: State{Phase: Starting, Reason: "VolumeClaimMissing", Stuck: true,
				Message: `was started (node on flavor h100), and 4 pods of Job llm-node-0: VolumeClaimMissing (0/6 nodes are available: persistentvolumeclaim "data" not found)`,
				Remedy:  "create the PersistentVolumeClaim that the message names in the namespace of the job, or take the volume out of the runtime or patch"},
		},
		"nodes are full of pods": {
			scene: []func(*scene){admitted, withPods(4, refusedBy("0/6 nodes are available: 6 Too many pods. preemption: none"))},
			want: State{Phase: Starting, Reason: "TooManyPods",
				Message: "was started (node on flavor h100), and 4 pods of Job llm-node-0: TooManyPods (0/6 nodes are available: 6 Too many pods)",
				Remedy:  "wait until pods on these nodes have ended, or raise maxPods of their kubelets; pods in coveredResources of the ClusterQueue has Kueue count them"},
		},
		"a manifest with pods larger than any node": {
			scene: []func(*scene){manifestOf, func(s *scene) {
				s.PodSets = []kueue.PodSet{podSet("node", 1)}
				s.PodSets[0].Template.Spec.Containers[0].Resources.Requests[gpu.Whole] = resource.MustParse("16")
			}},
			want: State{Phase: NotCreated, Reason: "PodTooLarge", Stuck: true,
				Remedy:  "ask for less per pod of replicated job node, and for more pods; or add larger nodes to flavor h100",
				Message: "asks for 16 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100, but a pod asks for 16 GPUs, and no node of the flavor has more than 8: Kueue counts only the sum, so pods stay Pending"},
		},
		"a manifest whose runtime may not be read": {
			scene: []func(*scene){manifestOf, func(s *scene) {
				s.Undescribed = apierrors.NewForbidden(schema.GroupResource{Resource: "clustertrainingruntimes"}, "torch", nil)
			}},
			want: State{Phase: NotCreated, Reason: "Unseen", Remedy: "ask an admin for the right to get it, or name a file with the runtime beside the job by -f",
				Message: `cannot be described, because you may not read its runtime: clustertrainingruntimes "torch" is forbidden: <nil>`},
		},
		"ready, seen by its Jobs alone": {
			scene: []func(*scene){admitted, func(s *scene) { s.PodsUnseen, s.Jobs[0].Status.Ready = true, ptr.To[int32](4) }},
			want:  State{Phase: Running, Reason: "Running", Message: "runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100"},
		},
		"not ready, seen by its Jobs alone": {
			scene: []func(*scene){admitted, func(s *scene) { s.PodsUnseen = true }},
			want: State{Phase: Starting, Reason: "PodsNotReady", Remedy: "ask for the right to list pods, which says why they are not",
				Message: "was started (node on flavor h100), and 0 of 4 pods are ready"},
		},
		"without a queue": {
			scene: []func(*scene){func(s *scene) { s.Workload, s.Job.Labels, s.Job.Spec.Suspend = nil, nil, nil }},
			want:  State{Phase: NotManaged, Reason: "NoQueue", Message: "names no queue: it runs outside of all quotas", Remedy: labelRemedy},
		},
		"without a queue, and its pods hang": {
			scene: []func(*scene){admitted, withoutQueue, withPods(4, refusedBy("0/6 nodes are available: 6 node(s) had untolerated taint(s). preemption: none"))},
			want: State{Phase: NotManaged, Reason: "NoQueue", Stuck: true, Remedy: labelRemedy,
				Message: "names no queue: it was started (outside of all quotas), and 4 pods of Job llm-node-0: Unschedulable (0/6 nodes are available: 6 node(s) had untolerated taint(s))"},
		},
		"without a queue, and its pods are refused": {
			scene: []func(*scene){admitted, withoutQueue, warned("FailedCreate", "denied by policy")},
			want: State{Phase: NotManaged, Reason: "NoQueue", Stuck: true, Remedy: refusedRemedy,
				Message: "names no queue: it was started (outside of all quotas), and 4 pods not made yet; the Job controller cannot make its pods: denied by policy"},
		},
		"without a queue and suspended": {
			scene: []func(*scene){func(s *scene) { s.Workload, s.Job.Labels = nil, nil }},
			want:  State{Phase: NotManaged, Reason: "Suspended", Message: "names no queue and is suspended by its user", Remedy: "resume it (spec.suspend: false), or " + labelRemedy},
		},
		"without a queue where all TrainJobs need one": {
			scene: []func(*scene){func(s *scene) {
				s.Workload, s.Job.Labels = nil, nil
				if _, err := s.Field.Set(&s.Job.Spec, []patch.Placement{patch.Gated("node")}); err != nil {
					panic(err)
				}
			}},
			want: State{Phase: Unqueued, Reason: "NoQueue", Stuck: true, Message: "is held at the admission gate and names no queue", Remedy: labelRemedy},
		},
		"just made": {
			scene: []func(*scene){admitted, justMade},
			want:  State{Phase: Unqueued, Reason: "JustMade", Message: "has no Workload yet"},
		},
		"just made, and Trainer has not made its JobSet": {
			scene: []func(*scene){justMade},
			want: State{Phase: Unqueued, Reason: "AwaitsJobSet",
				Message: "is not queued yet: Trainer has not made its JobSet, without which it queues after 10s (the manager's waitForJobSet)"},
		},
		"a minute old, and the manager waits for longer": {
			scene: []func(*scene){madeBefore(time.Minute), func(s *scene) { s.Manager = waitingFor(5 * time.Minute) }},
			want: State{Phase: Unqueued, Reason: "AwaitsJobSet",
				Message: "is not queued yet: Trainer has not made its JobSet, without which it queues after 5m0s (the manager's waitForJobSet)"},
		},
		"just made, and the manager's configuration cannot be read": {
			scene: []func(*scene){justMade, func(s *scene) { s.Manager = nil }},
			want: State{Phase: Unqueued, Reason: "AwaitsJobSet",
				Message: "is not queued yet: Trainer has not made its JobSet, without which it queues after the manager's waitForJobSet, 10s by default"},
		},
		"a minute old, and the manager's configuration cannot be read": {
			scene: []func(*scene){madeBefore(time.Minute), func(s *scene) { s.Manager = nil }},
			want: State{Phase: Unqueued, Reason: "NobodyReacts", Stuck: true, Remedy: "see that kueue-trainer runs: " + doctor,
				Message: "asks for queue gpus and has no Workload after 60s: nobody queues it, unless the manager's waitForJobSet is longer"},
		},
		"just made, and nobody waits for its JobSet": {
			scene: []func(*scene){justMade, func(s *scene) { s.Manager = waitingFor(0) }},
			want:  State{Phase: Unqueued, Reason: "JustMade", Message: "has no Workload yet"},
		},
		"just made for another cluster, where its JobSet will be": {
			scene: []func(*scene){elsewhereBy, justMade},
			want:  State{Phase: Unqueued, Reason: "JustMade", Message: "has no Workload yet"},
		},
		"Trainer made its JobSet late, JobSet has not made its Jobs": {
			scene: []func(*scene){admitted, madeBefore(time.Minute), func(s *scene) { s.Jobs, s.JobSet.CreationTimestamp = nil, metav1.NewTime(now) }},
			want: State{Phase: Unqueued, Reason: "AwaitsJobs",
				Message: "is not queued yet: JobSet has not made its Jobs, without which it queues after 2s"},
		},
		"just made, and JobSet has not made its Jobs": {
			scene: []func(*scene){admitted, justMade, func(s *scene) { s.Jobs = nil }},
			want: State{Phase: Unqueued, Reason: "AwaitsJobs",
				Message: "is not queued yet: JobSet has not made its Jobs, without which it queues after 2s"},
		},
		"nobody makes a Workload": {
			scene: []func(*scene){func(s *scene) { s.Workload = nil }},
			want: State{Phase: Unqueued, Reason: "NobodyReacts", Stuck: true,
				Message: "asks for queue gpus and has no Workload after 5m: nobody queues it", Remedy: "see that kueue-trainer runs: " + doctor},
		},
		"the manager said why it makes none": {
			scene: []func(*scene){func(s *scene) { s.Workload = nil }, warned("InTreeActive", "two integrations")},
			want:  State{Phase: Unqueued, Reason: "InTreeActive", Stuck: true, Message: "is not queued: two integrations"},
		},
		"its runtime is missing": {
			scene: []func(*scene){func(s *scene) { s.Workload, s.Undescribed = nil, missing }},
			want: State{Phase: Unqueued, Reason: "RuntimeMissing", Stuck: true,
				Message: "is not queued, because its pods cannot be told: runtime not found: there is no ClusterTrainingRuntime \"torch\""},
		},
		"its runtime went while it waits": {
			scene: []func(*scene){taken("h100", 3), func(s *scene) { s.Undescribed = missing }},
			want: State{Phase: Waiting, Reason: "RuntimeMissing", Stuck: true,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and its pods cannot be told any more: runtime not found: there is no ClusterTrainingRuntime \"torch\", 1st of 1 pending"},
		},
		"a user who may not see Workloads": {
			scene: []func(*scene){func(s *scene) { s.Workload, s.WorkloadUnseen = nil, true }},
			want:  State{Phase: Unqueued, Reason: "Unseen", Message: "is in a queue; you may not see its Workload"},
		},
		"deactivated by somebody": {
			scene: []func(*scene){func(s *scene) { s.Workload.Spec.Active = ptr.To(false) }},
			want: State{Phase: Deactivated, Reason: "Deactivated", Stuck: true, Message: "was taken out of its queue: spec.active of its Workload is false",
				Remedy: `kubectl -n team patch workload trainjob-llm --type=merge -p '{"spec":{"active":true}}'`},
		},
		"deactivated by Kueue, with pods left": {
			scene: []func(*scene){admitted, withPods(2, runningPod), func(s *scene) {
				s.Workload.Spec.Active = ptr.To(false)
				setCondition(s.Workload, kueue.WorkloadEvicted, "DeactivatedDueToRequeuingLimitExceeded", "too many tries", minutesAgo(1))
			}},
			want: State{Phase: Deactivated, Reason: "DeactivatedDueToRequeuingLimitExceeded", Stuck: true,
				Message: "was taken out of its queue: spec.active of its Workload is false (too many tries); 2 pods still there, while its quota goes to others",
				Remedy:  anotherWorkload},
		},
		"deactivated when its time was over": {
			scene: []func(*scene){func(s *scene) {
				s.Workload.Spec.Active = ptr.To(false)
				setCondition(s.Workload, kueue.WorkloadEvicted, "DeactivatedDueToMaximumExecutionTimeExceeded", "exceeding the maximum execution time", minutesAgo(1))
			}},
			want: State{Phase: Deactivated, Reason: "DeactivatedDueToMaximumExecutionTimeExceeded", Stuck: true,
				Message: "was taken out of its queue: spec.active of its Workload is false (exceeding the maximum execution time)",
				Remedy:  anotherWorkload},
		},
		"preempted, and its pods are going": {
			scene: []func(*scene){admitted, withPods(4, runningPod), pending("urgent", 100, minutesAgo(1)), func(s *scene) {
				setCondition(s.Workload, kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption,
					"Preempted to accommodate a workload (UID: urgent-workload, JobUID: urgent-uid) due to prioritization in the ClusterQueue", minutesAgo(1))
				setCondition(s.Workload, kueue.WorkloadPreempted, kueue.InClusterQueueReason, "", minutesAgo(1))
			}},
			want: State{Phase: Stopping, Reason: "Preempted",
				Message: "was preempted by team/urgent (for its higher priority in the ClusterQueue); 4 pods still there, it keeps the quota until they are gone"},
		},
		"preempted, and waiting again": {
			scene: []func(*scene){taken("h100", 4), taken("a100", 2), func(s *scene) {
				setCondition(s.Workload, kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption,
					"Preempted to accommodate a workload (UID: other-h100-workload, JobUID: other-h100-uid) due to prioritization in the ClusterQueue", minutesAgo(3))
			}},
			want: State{Phase: Waiting, Reason: "QuotaInUse", Remedy: waitOrRise,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100 has 0 of 32 GPUs free; flavor a100 has 16 GPUs at the most for it, 1st of 1 pending; it was preempted by team/other-h100 3m ago"},
		},
		"its LocalQueue is missing": {
			scene: []func(*scene){func(s *scene) { s.inventory.LocalQueues[0].Name = "other" }},
			want: State{Phase: Waiting, Reason: "LocalQueueMissing", Stuck: true, Message: "names LocalQueue gpus, which does not exist in namespace team",
				Remedy: "create it, or label the job with one that exists: other"},
		},
		"its LocalQueue is stopped": {
			scene: []func(*scene){func(s *scene) { s.inventory.LocalQueues[0].Spec.StopPolicy = ptr.To(kueue.Hold) }},
			want: State{Phase: Waiting, Reason: "LocalQueueStopped", Stuck: true, Message: "waits in LocalQueue gpus, which an admin has stopped (stopPolicy Hold)",
				Remedy: `kubectl -n team patch localqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`},
		},
		"its ClusterQueue is missing": {
			scene: []func(*scene){func(s *scene) { s.inventory.ClusterQueues = nil }},
			want: State{Phase: Waiting, Reason: "ClusterQueueMissing", Stuck: true, Message: "waits in LocalQueue gpus, whose ClusterQueue gpus does not exist",
				Remedy: "create ClusterQueue gpus, or name another LocalQueue: gpus"},
		},
		"its ClusterQueue is stopped": {
			scene: []func(*scene){func(s *scene) { s.inventory.ClusterQueues[0].Spec.StopPolicy = ptr.To(kueue.HoldAndDrain) }},
			want: State{Phase: Waiting, Reason: "ClusterQueueStopped", Stuck: true,
				Message: "waits in queue gpus (ClusterQueue gpus), and the ClusterQueue is stopped by an admin (stopPolicy HoldAndDrain)",
				Remedy:  `kubectl patch clusterqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`},
		},
		"its ClusterQueue is inactive": {
			scene: []func(*scene){func(s *scene) {
				s.inventory.ClusterQueues[0].Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: "False", Message: "Can't admit new workloads: references missing ResourceFlavor(s): l40."}}
			}},
			want: State{Phase: Waiting, Reason: "ClusterQueueInactive", Stuck: true,
				Message: "waits in queue gpus (ClusterQueue gpus), and the ClusterQueue is not active: Can't admit new workloads: references missing ResourceFlavor(s): l40.",
				Remedy:  "fix what the ClusterQueue names: kubectl describe clusterqueue gpus"},
		},
		"its ClusterQueue takes other namespaces": {
			scene: []func(*scene){func(s *scene) {
				s.inventory.ClusterQueues[0].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
				s.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
			}},
			want: State{Phase: Waiting, Reason: "NamespaceNotAllowed", Stuck: true,
				Message: "waits in queue gpus (ClusterQueue gpus), whose namespaceSelector does not take namespace team",
				Remedy:  "label the namespace as spec.namespaceSelector of ClusterQueue gpus wants it, or widen the selector"},
		},
		"a user who may not see ClusterQueues, one that is inactive": {
			scene: []func(*scene){func(s *scene) {
				s.inventory.ClusterQueues, s.inventory.Unseen = nil, []inventory.Unseen{{Kind: clusterQueues, Err: errors.New("forbidden")}}
				s.inventory.LocalQueues[0].Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: "False", Message: "Can't submit new workloads to clusterQueue"}}
			}},
			want: State{Phase: Waiting, Reason: "LocalQueueInactive", Stuck: true,
				Message: "waits in queue gpus (ClusterQueue gpus), and the LocalQueue is not active: Can't submit new workloads to clusterQueue",
				Remedy:  "ask an admin to look at the ClusterQueue: kubectl describe clusterqueue gpus"},
		},
		"a user who may not see ClusterQueues": {
			scene: []func(*scene){func(s *scene) {
				s.inventory.ClusterQueues, s.inventory.Unseen = nil, []inventory.Unseen{{Kind: clusterQueues}, {Kind: workloads}}
				s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: "False", Message: "couldn't assign flavors"}}
			}},
			want: State{Phase: Waiting, Reason: "Unseen", Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and Kueue says: couldn't assign flavors",
				Remedy: "ask an admin to run this command: you may not see the ClusterQueue"},
		},
		"quota in use": {
			scene: []func(*scene){taken("h100", 3), pending("urgent", 100, minutesAgo(1)), pending("earlier", 0, minutesAgo(9)), pending("later", 0, minutesAgo(1))},
			want: State{Phase: Waiting, Reason: "QuotaInUse", Remedy: waitOrRise,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100 has 8 of 32 GPUs free; flavor a100 has 16 GPUs at the most for it, 3rd of 4 pending"},
		},
		"more than there ever is": {
			scene: []func(*scene){func(s *scene) { s.Workload.Spec.PodSets[0].Count = 5 }},
			want: State{Phase: Waiting, Reason: "ExceedsQuota", Stuck: true, Remedy: raiseOrCut + "8 GPUs",
				Message: "waits in queue gpus (ClusterQueue gpus): needs 40 GPUs, flavor h100 has 32 GPUs at the most for it; flavor a100 has 16 GPUs at the most for it, 1st of 1 pending"},
		},
		"Kueue stops others for it": {
			scene: []func(*scene){taken("h100", 4), func(s *scene) {
				s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: "False", Message: "couldn't assign flavors. Pending the preemption of 1 workload(s)"}}
			}},
			want: State{Phase: Waiting, Reason: "Preempting", Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and Kueue is stopping others for it, 1st of 1 pending"},
		},
		"activated after Kueue had deactivated it": {
			scene: []func(*scene){func(s *scene) {
				s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: "False", Reason: "DeactivatedDueToAdmissionCheck"}}
			}},
			want: State{Phase: Waiting, Reason: "NotRequeued", Stuck: true, Remedy: anotherWorkload,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and was activated after Kueue had deactivated it, which Kueue does not queue again, 1st of 1 pending"},
		},
		"it is tried again later": {
			scene: []func(*scene){func(s *scene) {
				s.Workload.Status.RequeueState = &kueue.RequeueState{RequeueAt: ptr.To(minutesAgo(-1))}
			}},
			want: State{Phase: Waiting, Reason: "Backoff", Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and is tried again in 60s, 1st of 1 pending"},
		},
		"an admission check has rejected it": {
			scene: []func(*scene){func(s *scene) {
				s.Workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "budget", State: kueue.CheckStateRejected, Message: "over budget"}}
			}},
			want: State{Phase: Waiting, Reason: "AdmissionCheckRejected", Stuck: true,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and admission check budget says Rejected: over budget, 1st of 1 pending"},
		},
		"Kueue does not look": {
			want: State{Phase: Waiting, Reason: "KueueSilent", Stuck: true, Remedy: "see that Kueue runs: " + doctor,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, which would fit (node on flavor h100), and Kueue has not looked at it for 5m, 1st of 1 pending"},
		},
		"Kueue is about to look": {
			scene: []func(*scene){func(s *scene) { s.Workload.CreationTimestamp = metav1.NewTime(now) }},
			want: State{Phase: Waiting, Reason: "Evaluating",
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, which fits now (node on flavor h100): Kueue looks at it soon, 1st of 1 pending"},
		},
		"behind others in a strict queue": {
			scene: []func(*scene){pending("big", 0, minutesAgo(9)), func(s *scene) {
				s.inventory.ClusterQueues[0].Spec.QueueingStrategy = kueue.StrictFIFO
				s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: "False"}}
			}},
			want: State{Phase: Waiting, Reason: "BehindOthers", Remedy: "wait, or give the job a higher priority",
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, which would fit (node on flavor h100), but Kueue gives it to team/big first, 2nd of 2 pending"},
		},
		"behind one that cannot start in a strict queue": {
			scene: []func(*scene){pending("big", 0, minutesAgo(9)), strict, taken("h100", 1), func(s *scene) {
				s.Workload.Spec.PodSets[0].Count = 1
			}},
			want: State{Phase: Waiting, Reason: "BehindOthers", Remedy: behindRemedy,
				Message: "waits in queue gpus (ClusterQueue gpus): needs 8 GPUs, and ClusterQueue gpus is strictly first in, first out, and team/big (priority 0) is before it and cannot start, 2nd of 2 pending"},
		},
		"about to preempt": {
			scene: []func(*scene){taken("h100", 4), preempting, func(s *scene) { s.Workload.Spec.Priority = ptr.To[int32](10) }},
			want: State{Phase: Waiting, Reason: "Preempts",
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, and Kueue is about to make room by preempting team/other-h100 (priority 0, ClusterQueue gpus: lower in the same queue), 1st of 1 pending"},
		},
		"perhaps about to preempt, for whom may not read priorities": {
			scene: []func(*scene){taken("h100", 4), preempting, func(s *scene) {
				s.Workload.Spec.Priority = ptr.To[int32](10)
				s.PriorityUnseen = true
			}},
			want: State{Phase: Waiting, Reason: "QuotaInUse",
				Remedy:  "wait until others in ClusterQueue gpus have ended, or raise the job's priority (label kueue.x-k8s.io/priority-class) where the queue preempts",
				Message: "waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100 has 0 of 32 GPUs free; flavor a100 has 16 GPUs at the most for it, 1st of 1 pending"},
		},
		"managed without a queue": {
			scene: []func(*scene){func(s *scene) { s.Workload.Spec.QueueName, s.Job.Labels = "", nil }},
			want: State{Phase: Waiting, Reason: "NoQueue", Stuck: true, Remedy: labelRemedy,
				Message: "names no queue, and Kueue holds it all the same (manageJobsWithoutQueueName)"},
		},
		"quota reserved, a check is open": {
			scene: []func(*scene){func(s *scene) {
				admit(s.Workload, "gpus", "h100")
				s.inventory.AdmissionChecks = []kueue.AdmissionCheck{activeCheck("budget")}
				s.Workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "budget", State: kueue.CheckStatePending, Message: "asking"}}
			}},
			want: State{Phase: Reserved, Reason: "AdmissionCheckPending",
				Message: "has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: admission check budget is Pending (asking)"},
		},
		"quota reserved, nobody looks after the check": {
			scene: []func(*scene){func(s *scene) {
				admit(s.Workload, "gpus", "h100")
				s.Workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "budget", State: kueue.CheckStatePending}}
			}},
			want: State{Phase: Reserved, Reason: "AdmissionCheckInactive", Stuck: true,
				Remedy:  "see that the controller of AdmissionCheck budget runs: kubectl describe admissioncheck budget",
				Message: "has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: admission check budget is Pending: admission check budget is not active: it does not exist"},
		},
		"admitted and about to be started": {
			scene: []func(*scene){func(s *scene) {
				admit(s.Workload, "gpus", "h100", kueue.WorkloadAdmitted)
				s.Now = minutesAgo(2).Time
			}},
			want: State{Phase: Starting, Reason: "Placing", Message: "is admitted (node on flavor h100) and about to be started"},
		},
		"admitted and not started": {
			scene: []func(*scene){func(s *scene) { admit(s.Workload, "gpus", "h100", kueue.WorkloadAdmitted) }},
			want: State{Phase: Starting, Reason: "NotStarted", Stuck: true, Remedy: "see that kueue-trainer and Trainer run: " + doctor,
				Message: "was admitted (node on flavor h100) 2m ago, holds its quota and was not started"},
		},
		"admitted to what contradicts it": {
			scene: []func(*scene){func(s *scene) { admit(s.Workload, "gpus", "h100", kueue.WorkloadAdmitted) }, warned("PlacementRefused", "pool is a, the admission wants h100")},
			want: State{Phase: Starting, Reason: "PlacementRefused", Stuck: true,
				Message: "is admitted (node on flavor h100), holds its quota and cannot be started: pool is a, the admission wants h100"},
		},
		"resumed, and Trainer does not resume the JobSet": {
			scene: []func(*scene){admitted, func(s *scene) { s.JobSet.Spec.Suspend = ptr.To(true) }, warned("JobSetOutdated", "undo the edit")},
			want: State{Phase: Starting, Reason: "JobSetOutdated", Stuck: true,
				Message: "is admitted (node on flavor h100), holds its quota and cannot be started: undo the edit"},
		},
		"started, no pods yet": {
			scene: []func(*scene){admitted, func(s *scene) { s.Now = minutesAgo(2).Time }},
			want:  State{Phase: Starting, Reason: "PodsMissing", Message: "was started (node on flavor h100), and 4 pods not made yet"},
		},
		"started, and no pods come": {
			scene: []func(*scene){admitted},
			want: State{Phase: Starting, Reason: "PodsMissing", Stuck: true, Message: "was started (node on flavor h100), and 4 pods not made yet",
				Remedy: "see what its Jobs say: kubectl -n team describe jobs -l jobset.sigs.k8s.io/jobset-name=llm"},
		},
		"pods behind our gate": {
			scene: []func(*scene){admitted, withPods(4, gate(patch.AdmissionGate))},
			want: State{Phase: Starting, Reason: "AdmissionGate", Stuck: true,
				Message: "was started (node on flavor h100), and 4 pods of Job llm-node-0: AdmissionGate (scheduling gate kueue-trainer.dev/admission)",
				Remedy:  "kueue-trainer frees them when their Workload is admitted: kubectl trainjob doctor tells whether it runs"},
		},
		"pods behind somebody's gate": {
			scene: []func(*scene){admitted, withPods(4, gate("example.com/wait"))},
			want: State{Phase: Starting, Reason: "SchedulingGate", Stuck: true, Remedy: "whoever set the gate has to take it off",
				Message: "was started (node on flavor h100), and 4 pods of Job llm-node-0: SchedulingGate (scheduling gate example.com/wait)"},
		},
		"pods that no node has room for": {
			scene: []func(*scene){admitted, withPods(3, runningPod), func(s *scene) {
				withPods(1, func(p *corev1.Pod) {
					p.Name = "llm-node-0-3"
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/6 nodes are available: 6 Insufficient nvidia.com/gpu. preemption: none"}}
				})(s)
			}},
			want: State{Phase: Starting, Reason: "Unschedulable", Stuck: true,
				Message: "was started (node on flavor h100), and 1 pod of Job llm-node-0: Unschedulable (0/6 nodes are available: 6 Insufficient nvidia.com/gpu)",
				Remedy:  "the quota is more than the nodes have room for: kubectl trainjob pools shows both"},
		},
		"pods whose image cannot be had": {
			scene: []func(*scene){admitted, withPods(4, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
			})},
			want: State{Phase: Starting, Reason: "ImagePullBackOff", Stuck: true, Remedy: "kubectl -n team describe pod llm-node-0-0",
				Message: "was started (node on flavor h100), and 4 pods of Job llm-node-0: ImagePullBackOff (no such image)"},
		},
		"running": {
			scene: []func(*scene){admitted, withPods(4, runningPod)},
			want:  State{Phase: Running, Reason: "Running", Message: "runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100"},
		},
		"a manifest that fits": {
			scene: []func(*scene){func(s *scene) { s.Job.UID, s.Workload = "", nil }},
			want:  State{Phase: NotCreated, Reason: "Fits", Message: "asks for 32 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100"},
		},
		"a manifest that would wait": {
			scene: []func(*scene){taken("h100", 1), func(s *scene) { s.Job.UID, s.Workload = "", nil }},
			want: State{Phase: NotCreated, Reason: "QuotaInUse", Remedy: waitOrRise,
				Message: "would wait in queue gpus (ClusterQueue gpus): asks for 32 GPUs, flavor h100 has 24 of 32 GPUs free; flavor a100 has 16 GPUs at the most for it"},
		},
		"a manifest whose pods no node would take": {
			scene: []func(*scene){func(s *scene) {
				s.Job.UID, s.Workload = "", nil
				s.PodSets[0].Template.Spec.NodeSelector = map[string]string{"disk": "fast"}
			}},
			want: State{Phase: NotCreated, Reason: "SelectorMismatch", Stuck: true, Remedy: "take node selector disk=fast out of replicated job node, or label nodes of flavor h100 so",
				Message: "asks for 32 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100, but node selector disk=fast matches no node of the flavor: Kueue looks only at labels that the flavor has, so pods stay Pending"},
		},
		"a manifest without a queue": {
			scene: []func(*scene){manifestOf, func(s *scene) { s.Job.Labels, s.Kueue = nil, &configapi.Configuration{} }},
			want:  State{Phase: NotCreated, Reason: "NoQueue", Message: "names no queue, so it would start at once, outside of all quotas", Remedy: labelRemedy},
		},
		"a manifest without a queue, which Kueue manages": {
			scene: []func(*scene){manifestOf, managesAll},
			want: State{Phase: NotCreated, Reason: "NoQueue", Stuck: true, Remedy: labelRemedy,
				Message: "names no queue, and Kueue manages jobs without one (manageJobsWithoutQueueName): it would be held and never start"},
		},
		"a manifest without a queue, in a namespace that is not Kueue's": {
			scene: []func(*scene){manifestOf, managesAll, func(s *scene) { s.Namespace.Labels = nil }},
			want:  State{Phase: NotCreated, Reason: "NoQueue", Message: "names no queue, so it would start at once, outside of all quotas", Remedy: labelRemedy},
		},
		"a manifest without a queue, and nobody to say what Kueue does": {
			scene: []func(*scene){manifestOf, func(s *scene) { s.Job.Labels = nil }},
			want: State{Phase: NotCreated, Reason: "NoQueue", Remedy: labelRemedy,
				Message: "names no queue; whether it would start at once or be held depends on Kueue's manageJobsWithoutQueueName, which you may not see"},
		},
		"an urgent manifest that would preempt": {
			scene: []func(*scene){manifestOf, taken("h100", 4), preempting, func(s *scene) { s.Priority = 10 }},
			want: State{Phase: NotCreated, Reason: "Preempts",
				Message: "asks for 32 GPUs and would get them in queue gpus (ClusterQueue gpus) by preempting team/other-h100 (priority 0, ClusterQueue gpus: lower in the same queue): node on flavor h100"},
		},
		"a manifest behind the blocked head of a strict queue": {
			scene: []func(*scene){manifestOf, pending("big", 0, minutesAgo(9)), strict, taken("h100", 1), func(s *scene) {
				s.PodSets = []kueue.PodSet{podSet("node", 1)}
			}},
			want: State{Phase: NotCreated, Reason: "BehindOthers", Remedy: behindRemedy,
				Message: "would wait in queue gpus (ClusterQueue gpus): asks for 8 GPUs, and ClusterQueue gpus is strictly first in, first out, and team/big (priority 0) is before it and cannot start"},
		},
		"a manifest past the blocked head of another queue": {
			scene: []func(*scene){manifestOf, pending("big", 0, minutesAgo(9)), taken("h100", 1), func(s *scene) {
				s.PodSets = []kueue.PodSet{podSet("node", 1)}
			}},
			want: State{Phase: NotCreated, Reason: "Fits", Message: "asks for 8 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100"},
		},
		"a manifest that would borrow what another keeps for itself": {
			scene: []func(*scene){manifestOf, pending("big", 0, minutesAgo(9)), taken("h100", 1), strict, borrower(1)},
			want: State{Phase: NotCreated, Reason: "QuotaInUse", Remedy: "wait, or give the job a higher priority than the one before it",
				Message: "would wait in queue guests (ClusterQueue guests): asks for 8 GPUs, which would fit (node on flavor h100), but Kueue keeps it for team/big (priority 0): Workload no longer fits after processing another workload"},
		},
		"a manifest behind one that would borrow what another keeps": {
			scene: []func(*scene){manifestOf, pending("big", 0, minutesAgo(9)), taken("h100", 1), strict, borrower(1), func(s *scene) {
				s.inventory.Workloads = append(s.inventory.Workloads, *waitingWorkload("guest", "guests", 3, minutesAgo(8)))
			}},
			want: State{Phase: NotCreated, Reason: "BehindOthers", Remedy: "wait, or give the job a higher priority than the one in front",
				Message: "would wait in queue guests (ClusterQueue guests): asks for 8 GPUs, and team/guest (priority 0) is before it in ClusterQueue guests and cannot start: others keep what it would take"},
		},
		"a manifest of one who does not see what others have": {
			scene: []func(*scene){manifestOf, func(s *scene) { s.inventory.Unseen = []inventory.Unseen{{Kind: workloads}} }},
			want: State{Phase: NotCreated, Reason: "Unseen", Remedy: "ask an admin to run this command, or submit the job and explain it by its name",
				Message: "asks for 32 GPUs in queue gpus (ClusterQueue gpus); whether they are free cannot be told, because you may not see what others have"},
		},
		"a manifest for a stopped queue": {
			scene: []func(*scene){func(s *scene) {
				s.Job.UID, s.Workload = "", nil
				s.inventory.LocalQueues[0].Spec.StopPolicy = ptr.To(kueue.Hold)
			}},
			want: State{Phase: NotCreated, Reason: "LocalQueueStopped", Stuck: true, Message: "would not start: it waits in LocalQueue gpus, which an admin has stopped (stopPolicy Hold)",
				Remedy: `kubectl -n team patch localqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := StateOf(newScene(tc.scene...).facts(t))
			kit.Same(t, "state", tc.want, got, cmpopts.IgnoreFields(State{}, "Since", "Cause"))
		})
	}
}

func activeCheck(name string) kueue.AdmissionCheck {
	check := kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: "True"}}
	return check
}

const behindRemedy = "wait, give the job a higher priority than the one in front, or set queueingStrategy of ClusterQueue gpus to BestEffortFIFO"

// manifestOf makes a manifest of the job.
func manifestOf(s *scene) { s.Job.UID, s.Workload = "", nil }

func strict(s *scene) { s.inventory.ClusterQueues[0].Spec.QueueingStrategy = kueue.StrictFIFO }

// borrower has the job ask for nodes in a ClusterQueue of the same cohort without quota.
func borrower(nodes int32) func(*scene) {
	return func(s *scene) {
		s.inventory.ClusterQueues[0].Spec.CohortName = "all"
		s.inventory.ClusterQueues[0].Spec.ResourceGroups[0].Flavors = []kueue.FlavorQuotas{quota("h100", "32")}
		s.inventory.ClusterQueues = append(s.inventory.ClusterQueues, clusterQueue("guests", "all", quota("h100", "0")))
		s.inventory.LocalQueues = append(s.inventory.LocalQueues, localQueue("guests", "guests"))
		s.Job.Labels[kueueconstants.QueueLabel] = "guests"
		s.PodSets = []kueue.PodSet{podSet("node", nodes)}
	}
}

func preempting(s *scene) {
	s.inventory.ClusterQueues[0].Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// managesAll has Kueue manage jobs without a queue in namespaces for teams.
func managesAll(s *scene) {
	s.Job.Labels = nil
	s.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"for": "teams"}}}
	s.Kueue = &configapi.Configuration{
		ManageJobsWithoutQueueName: true, ManagedJobsNamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": "teams"}},
	}
}

const refusedRemedy = "change what the message names: the runtime or a patch of the job, or who refuses it; it is tried again"

// dependent adds a replicated job that waits for the first, which is complete.
func dependent(s *scene) {
	s.JobSet.Spec.ReplicatedJobs = append(s.JobSet.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{
		Name: "launcher", Replicas: 1, DependsOn: []jobsetapi.DependsOn{{Name: s.JobSet.Spec.ReplicatedJobs[0].Name, Status: jobsetapi.DependencyComplete}},
		Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](3), Completions: ptr.To[int32](3)}},
	})
	s.Jobs[0].Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
}

func elsewhereBy(s *scene) { s.Job.Spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") }

func prebuiltMissing(s *scene) {
	s.Workload = nil
	s.Job.Labels[kueueconstants.PrebuiltWorkloadLabel] = "mine"
}

func finishedByHand(s *scene) {
	setCondition(s.Workload, kueue.WorkloadFinished, "ByHand", "it was in the way", minutesAgo(1))
}

func withoutQueue(s *scene) { s.Workload, s.Job.Labels = nil, nil }

// refusedBy is what the scheduler says of a pod that it cannot place.
func refusedBy(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

// justMade is the job before it queues.
func justMade(s *scene) { madeBefore(0)(s) }

// madeBefore is a job that was made a while ago and has not queued.
func madeBefore(ago time.Duration) func(*scene) {
	return func(s *scene) { s.Workload, s.Job.CreationTimestamp = nil, metav1.NewTime(now.Add(-ago)) }
}
