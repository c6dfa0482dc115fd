// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What states say, in words that several have.
const (
	waits         = "waits in queue gpus (ClusterQueue gpus)"
	needs32       = waits + ": needs 32 GPUs, "
	alone         = ", 1st of 1 pending"
	a100TooSmall  = "flavor a100: ClusterQueue gpus has 16 GPUs at the most"
	waitsForCheck = "has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: admission check "
	cannotStart   = "is admitted (node on flavor h100), holds its quota and cannot be started: "
	notMade       = "was started (node on flavor h100), and 4 pods not made yet"
	podsDenied    = "; the Job controller cannot make its pods: denied by policy"
	fourPods      = "was started (node on flavor h100), and 4 pods of Job llm-node-0: "
	runs4         = "runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100"
	noJobSetYet   = "is not queued yet: Trainer has not made its JobSet, without which it queues after "
	takenOut      = "was taken out of its queue: spec.active of its Workload is false"
	couldHave32   = "asks for 32 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100"
	wouldWait     = "would wait in queue gpus (ClusterQueue gpus): asks for "
)

const (
	doctor     = "kubectl trainjob doctor"
	raiseOrCut = "create the job again, since spec.trainer cannot change, and ask for less (fewer nodes, or less per node), or raise the nominalQuota of flavor h100 in ClusterQueue gpus by "
	waitForEnd = "wait until others in ClusterQueue gpus have ended"
	orRaise    = ", or raise the job's priority (label kueue.x-k8s.io/priority-class)"
)

const askAdmin = "ask an admin to run this command: you may not see what others have"

const lookAgain = "have it look again: kubectl edit clusterqueue gpus, change a nominalQuota by one, and change it back"

const anotherWorkload = "put right what its message says, and create the TrainJob again, or have somebody with Kueue's role batch-admin delete its Workload, and it queues again with another: kubectl -n team delete workload trainjob-llm"

func TestStateOf(t *testing.T) {
	missing := fmt.Errorf("%w: there is no ClusterTrainingRuntime \"torch\"", trainjob.ErrRuntimeNotFound)
	gate := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: name}} }
	}
	eachScene(t, "state", map[string]row[State]{
		"complete": given(ended(trainer.TrainJobComplete, "JobsCompleted", "all jobs done")).is(Succeeded, "JobsCompleted", "is complete: all jobs done", ""),
		"failed, with Trainer's message": given(ended(trainer.TrainJobFailed, "FailedJobs", "jobset failed")).is(Failed, "FailedJobs",
			"has failed: jobset failed", ""),
		"of another controller": given(func(s *scene) { s.Workload, s.Job.Spec.ManagedBy = nil, new("example.com/other") }).is(
			NotManaged, "ManagedElsewhere", "belongs to example.com/other (spec.managedBy), which may run it on another cluster", ""),
		"for another cluster, without a queue": given(elsewhereBy, withoutQueue).is(NotManaged, "ManagedElsewhere",
			"belongs to kueue.x-k8s.io/multikueue (spec.managedBy), which may run it on another cluster", ""),
		"for another cluster, and nobody queues it": given(elsewhereBy, withoutWorkload).stuck(Unqueued, "NobodyReacts",
			"asks for queue gpus and has no Workload after 5m: nobody queues it", "see that kueue-trainer runs: "+doctor),
		"for another cluster, without quota yet": given(elsewhereBy, taken("h100", 1)).is(Waiting, "QuotaInUse",
			needs32+"flavor h100: 24 of 32 GPUs are free; "+a100TooSmall+alone, waitForEnd),
		"its prebuilt Workload is missing": given(prebuiltMissing).stuck(Unqueued, "PrebuiltMissing",
			"is not queued: it names prebuilt Workload mine, which is not there or not its own",
			"create Workload mine in namespace team like the TrainJob, and the job queues"),
		"its prebuilt Workload is not like it": given(prebuiltMissing, warned("PrebuiltWorkloadUnusable", "prebuilt Workload mine is not what this TrainJob is")).stuck(
			Unqueued, "PrebuiltMissing", "is not queued: prebuilt Workload mine is not what this TrainJob is",
			"create Workload mine in namespace team like the TrainJob, and the job queues"),
		"its Workload was finished out of sync": given(with(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonOutOfSync, "it is not like its job", 1)).stuck(
			Deactivated, "OutOfSync", "gets no quota any more: its Workload trainjob-llm was finished without a run: it is not like its job",
			"delete Workload trainjob-llm and create it again like the TrainJob, and the job queues"),
		"its prebuilt Workload was finished out of sync, and in what it differs is told": given(
			with(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonOutOfSync, "it is not like its job", 1),
			warned("PrebuiltWorkloadUnusable", "prebuilt Workload trainjob-llm is not what this TrainJob is: other containers"),
		).stuck(Deactivated, "OutOfSync",
			"gets no quota any more: prebuilt Workload trainjob-llm is not what this TrainJob is: other containers",
			"delete Workload trainjob-llm and create it again like the TrainJob, and the job queues"),
		"its start was given up": given(admitted, with(kueue.WorkloadFinished, "FailedToStart", "conflict for nodeSelector: zone", 1)).stuck(
			Deactivated, "FailedToStart", "could not be started, and its Workload trainjob-llm is finished: conflict for nodeSelector: zone",
			"put that right, then delete Workload trainjob-llm, and the job queues again"),
		"failed, and its JobSet is gone": given(placed, with(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed, "jobset failed", 1)).is(
			Failed, "Failed", "has failed (jobset failed); Trainer forgot it with its JobSet", ""),
		"complete, and its JobSet is gone": given(placed, with(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded, "jobset completed", 1)).is(
			Succeeded, "Succeeded", "is complete (jobset completed); Trainer forgot it with its JobSet", ""),
		"failed, and its JobSet and its Workload are gone": given(withoutWorkload, markedEnded("llm-uid")).is(
			Failed, "HasEnded", "has ended; Trainer forgot it with its JobSet", ""),
		"a copy of one that failed": given(justMade, markedEnded("former-uid")).is(Unqueued, "AwaitsJobSet", noJobSetYet+"10s (the manager's waitForJobSet)", ""),
		"its Workload was finished while it waits": given(finishedByHand).stuck(Deactivated, "ByHand",
			"gets no quota any more: its Workload trainjob-llm is finished, though the TrainJob is not: it was in the way",
			"delete the TrainJob and create it again"),
		"its Workload was finished while it runs": given(admitted, withPods(4, runningPod), finishedByHand).is(Stopping, "ByHand",
			"is about to end: its Workload trainjob-llm is finished: it was in the way; 4 pods still there", ""),
		"its priority class is not there": given(withoutWorkload, naming("gone"), classes("low", "urgent"), warned(jobevents.ReasonNoPriority, "told before")).stuck(
			Unqueued, jobevents.ReasonNoPriority, "is not queued: it names WorkloadPriorityClass gone, which does not exist",
			"create it, or label the job with one that exists: low, urgent"),
		"its priority class is not there, as the manager says to who may not look": given(withoutWorkload, naming("gone"), warned(jobevents.ReasonNoPriority, "gone not found")).stuck(
			Unqueued, jobevents.ReasonNoPriority, "is not queued: gone not found", ""),
		"its new priority class is not there while it waits": given(naming("gone"), classes()).stuck(Waiting, jobevents.ReasonNoPriority,
			needs32+"and it names WorkloadPriorityClass gone, which does not exist: it does not start before that does"+alone,
			"create it, or label the job with one that exists: there is none"),
		"its priority class was deleted since it waits": given(naming("gone"), classes(), taken("h100", 1), func(s *scene) { s.Workload.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef("gone") }).is(
			Waiting, "QuotaInUse", needs32+"flavor h100: 24 of 32 GPUs are free; "+a100TooSmall+alone, waitForEnd),
		"its priority class is not there when it is admitted": given(placed, naming("gone"), classes("low")).stuck(Starting, jobevents.ReasonNoPriority,
			cannotStart+"it names WorkloadPriorityClass gone, which does not exist", "create it, or label the job with one that exists: low"),
		"its JobSet cannot be made": given(withoutWorkload, warned("TrainJobResourcesCreationFailed", "denied by policy")).stuck(
			Unqueued, "JobSetRefused", "is not queued: Trainer cannot make its JobSet: denied by policy", refusedRemedy),
		"its Jobs cannot be made": given(func(s *scene) { s.Workload, s.JobSet = nil, &jobsetapi.JobSet{} }, warned("JobCreationFailed", "denied by policy")).stuck(
			Unqueued, "JobsRefused", "is not queued: JobSet cannot make its Jobs: denied by policy", refusedRemedy),
		"the latest refusal is told, and none from before the admission": given(admitted, warned("FailedCreate", "denied by policy"), warned("HeadlessServiceCreationFailed", "at first"), func(s *scene) {
			s.Warnings[1].LastTimestamp = minutesAgo(2)
			s.Warnings = append(s.Warnings, corev1.Event{Reason: "JobCreationFailed", Message: "in the former run", LastTimestamp: minutesAgo(4)})
		}).stuck(Starting, "PodsRefused", notMade+podsDenied, refusedRemedy),
		"a refused Service that was made since": given(admitted, warned("HeadlessServiceCreationFailed", "no Endpoints"), warned("PVCCreationFailed", "no storage"), func(s *scene) {
			s.Workload.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-patience / 2))
			s.Warnings[0].LastTimestamp, s.Warnings[1].LastTimestamp = metav1.NewTime(now), metav1.NewTime(now)
		}).is(Starting, "PodsMissing", notMade, ""),
		"a refused Service before the Jobs are resumed": given(admitted, warned("HeadlessServiceCreationFailed", "denied by policy"), func(s *scene) { s.Jobs[0].Spec.Suspend = new(true) }).stuck(
			Starting, "ServiceRefused", notMade+"; JobSet cannot make its Service: denied by policy", refusedRemedy),
		"one of its Jobs cannot be made": given(admitted, warned("JobCreationFailed", "denied by policy"), func(s *scene) { s.JobSet.Spec.ReplicatedJobs[0].Replicas = 2 }).stuck(
			Starting, "JobsRefused", "was started (node on flavor h100), and 5 pods not made yet; JobSet cannot make its Jobs: denied by policy",
			refusedRemedy),
		"a Job that waited for another cannot be made": given(admitted, dependent, warned("JobCreationFailed", "denied by policy")).stuck(
			Starting, "JobsRefused", "was started (node on flavor h100), and 3 pods not made yet; JobSet cannot make its Jobs: denied by policy",
			refusedRemedy),
		"a JobSet that starts in order": given(admitted, dependent, withPods(4, runningPod), func(s *scene) {
			s.Jobs[0].Status.Conditions, s.JobSet.Spec.ReplicatedJobs[1].DependsOn = nil, nil
			s.JobSet.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
		}).is(Running, "Running", runs4, ""),
		"a Job that waited for another until now": given(admitted, dependent, func(s *scene) { s.Jobs[0].Status.CompletionTime = new(metav1.NewTime(now)) }).is(
			Starting, "PodsMissing", "was started (node on flavor h100), and 3 pods not made yet", ""),
		"a Job that waits for another, whose own was refused in a former run": given(admitted, dependent, withPods(4, runningPod), warned("JobCreationFailed", "denied by policy"), func(s *scene) { s.Jobs[0].Status.Conditions = nil }).is(
			Running, "Running", runs4, ""),
		"a refusal of a former run": given(admitted, warned("FailedCreate", "denied by policy"), func(s *scene) { s.Warnings[0].LastTimestamp = minutesAgo(4) }).stuck(
			Starting, "PodsMissing", notMade, "see what its Jobs say: kubectl -n team describe jobs -l jobset.sigs.k8s.io/jobset-name=llm"),
		"its pods cannot be made": given(admitted, warned("FailedCreate", "denied by policy")).stuck(Starting, "PodsRefused", notMade+podsDenied, refusedRemedy),
		"its Job cannot be made of spec.trainer": given(admitted, ofTrainer, warned("JobCreationFailed", `Job.batch "llm-node-0" is invalid: spec.template.spec.containers[1].env[0].name: Invalid value`), func(s *scene) { s.Jobs = nil }).stuck(
			Starting, "JobsRefused", notMade+`; JobSet cannot make its Jobs: Job.batch "llm-node-0" is invalid: spec.template.spec.containers[1].env[0].name: Invalid value`,
			"create the job again with another spec.trainer.env, which the message names and nobody can change"),
		"its Job cannot be made of as many nodes": given(admitted, ofTrainer, warned("JobCreationFailed", `Job.batch "llm-node-0" is invalid: spec.parallelism: Invalid value: 100001`), func(s *scene) { s.Jobs = nil }).stuck(
			Starting, "JobsRefused", notMade+`; JobSet cannot make its Jobs: Job.batch "llm-node-0" is invalid: spec.parallelism: Invalid value: 100001`,
			"create the job again with another spec.trainer.numNodes, which the message names and nobody can change"),
		"its pods cannot be made of spec.trainer": given(admitted, ofTrainer, warned("FailedCreate", "spec.containers[1].image: Invalid value"), of("llm-node-0")).stuck(
			Starting, "PodsRefused", notMade+"; the Job controller cannot make its pods: spec.containers[1].image: Invalid value",
			"create the job again with another spec.trainer.image, which the message names and nobody can change"),
		"its pods cannot be made of what another replicated job has there": given(admitted, ofTrainer, warned("FailedCreate", "spec.containers[1].image: Invalid value"), of("llm-launcher-0")).stuck(
			Starting, "PodsRefused", notMade+"; the Job controller cannot make its pods: spec.containers[1].image: Invalid value", refusedRemedy),
		"its pods cannot be made of the runtime's container": given(admitted, ofTrainer, warned("FailedCreate", "spec.containers[0].image: Invalid value"), of("llm-node-0")).stuck(
			Starting, "PodsRefused", notMade+"; the Job controller cannot make its pods: spec.containers[0].image: Invalid value", refusedRemedy),
		"its pods cannot be made of what spec.trainer leaves to the runtime": given(admitted, ofTrainer, warned("FailedCreate", "spec.containers[1].args: Invalid value"), of("llm-node-0")).stuck(
			Starting, "PodsRefused", notMade+"; the Job controller cannot make its pods: spec.containers[1].args: Invalid value", refusedRemedy),
		"its pods exceed a ResourceQuota": given(admitted, warned("FailedCreate", "exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5")).is(
			Starting, "PodsRefused", notMade+"; the Job controller cannot make its pods: exceeded quota: pods, requested: pods=1, used: pods=5, limited: pods=5",
			"wait until others in the namespace have ended, or raise the ResourceQuota that the message names"),
		"its pods ask for more than a ResourceQuota has": given(admitted, warned("FailedCreate", "exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0")).stuck(
			Starting, "PodsRefused", notMade+"; the Job controller cannot make its pods: exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0",
			"raise the ResourceQuota that the message names: it has less in all than one pod asks for"),
		"a volume claim is missing": given(admitted, withPods(4, refusedBy(`0/6 nodes are available: persistentvolumeclaim "data" not found. preemption: none`))).stuck(
			Starting, "VolumeClaimMissing", `was started (node on flavor h100), and 4 pods of Job llm-node-0: VolumeClaimMissing (0/6 nodes are available: persistentvolumeclaim "data" not found)`,
			"create the PersistentVolumeClaim that the message names in the namespace of the job, or create the job again without the volume"),
		"nodes are full of pods": given(admitted, withPods(4, refusedBy("0/6 nodes are available: 6 Too many pods. preemption: none"))).is(
			Starting, "TooManyPods", fourPods+"TooManyPods (0/6 nodes are available: 6 Too many pods)",
			"wait until pods on these nodes have ended, or raise maxPods of their kubelets; pods in coveredResources of the ClusterQueue has Kueue count them"),
		"a manifest for more than there ever is": given(manifestOf, func(s *scene) { s.PodSets = []kueue.PodSet{podSet("node", 5)} }).stuck(
			NotCreated, "ExceedsQuota", wouldWait+"40 GPUs, flavor h100: ClusterQueue gpus has 32 GPUs at the most; "+a100TooSmall,
			"ask for less (fewer nodes, or less per node), or raise the nominalQuota of flavor h100 in ClusterQueue gpus by 8 GPUs"),
		"a manifest with pods larger than any node": given(manifestOf, func(s *scene) {
			s.PodSets = []kueue.PodSet{podSet("node", 1)}
			s.PodSets[0].Template.Spec.Containers[0].Resources.Requests[gpu.Whole] = resource.MustParse("16")
		}).stuck(NotCreated, "PodTooLarge",
			"asks for 16 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100, "+
				"but a pod asks for 16 GPUs, and the largest node of the flavor, h100-0, has 8: Kueue does not look at that, so pods stay Pending", "ask for less per pod of replicated job node, and for more pods; or add larger nodes to flavor h100"),
		"a manifest with pods for devices of a DeviceClass, of which nodes do not tell": given(manifestOf, func(s *scene) {
			for i := range s.inventory.Nodes {
				delete(s.inventory.Nodes[i].Status.Allocatable, gpu.Whole)
			}
			s.inventory.DeviceClasses = []resourcev1.DeviceClass{{Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(string(gpu.Whole))}}}
			s.PodSets = []kueue.PodSet{podSet("node", 1)}
		}).is(NotCreated, "Fits", "asks for 8 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100", ""),
		"pods larger than any node of a topology": given(onlyTopologies, beside("cpu"), func(s *scene) { s.Workload.Spec.PodSets[0] = kit.PodSet("node", 1, "nvidia.com/gpu", "9") }).stuck(
			Waiting, "PodTooLarge", waits+": needs 9 GPUs, flavor h100: a pod asks for 9 GPUs, and the largest node of the flavor, h100-0, has 8; "+
				"flavor a100: a pod asks for 9 GPUs, and the largest node of the flavor, a100-0, has 8"+alone,
			"create the job again, since spec.trainer cannot change, and ask for less per pod of replicated job node, and for more pods; or add larger nodes to flavor h100"),
		"a node selector that no node of a topology has": given(onlyTopologies, ofH100, func(s *scene) {
			s.Workload.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"disk": "fast"}
		}).stuck(Waiting, "SelectorMismatch",
			needs32+"flavor h100: node selector disk=fast matches no node of the flavor"+alone,
			"take node selector disk=fast out of replicated job node, or label nodes of flavor h100 so"),
		"a topology whose quota is in use, beside a flavor without GPUs": given(onlyTopologies, beside("cpu"), ofFirst(2), taken("h100", 3)).is(
			Waiting, "QuotaInUse", needs32+"flavor h100: 8 of 32 GPUs are free"+alone, waitForEnd),
		"a replicated job that asks for nothing of a topology": given(onlyTopologies, func(s *scene) {
			s.Workload.Spec.PodSets = []kueue.PodSet{kit.PodSet("initializer", 1), podSet("node", 4)}
		}).stuck(Waiting, "NothingRequested",
			needs32+"replicated job initializer asks for nothing, and Kueue admits no such pods by a topology"+alone,
			"have the pods of replicated job initializer ask for something that ClusterQueue gpus has, such as some cpu, or have flavors without a topology there: kubectl trainjob pools generate makes such"),
		"a resource that its ClusterQueue does not have": given(ofH100, asking("nvidia.com/gpus", "1")).stuck(Waiting, "ResourceNotInQueue", needs32+"ClusterQueue gpus has no quota for nvidia.com/gpus"+alone,
			"ask for what it has (nvidia.com/gpu), or add nvidia.com/gpus to a resource group of ClusterQueue gpus, or take the request out of the job or its runtime"),
		"a manifest whose runtime may not be read": given(manifestOf, func(s *scene) {
			s.Undescribed = apierrors.NewForbidden(schema.GroupResource{Resource: "clustertrainingruntimes"}, "torch", nil)
		}).is(NotCreated, "Unseen",
			`cannot be described, because you may not read its runtime: clustertrainingruntimes "torch" is forbidden: <nil>`,
			"ask an admin for the right to get it, or name a file with the runtime beside the job by -f"),
		"ready, seen by its Jobs alone": given(admitted, func(s *scene) { s.Unseen, s.Jobs[0].Status.Ready = []string{inventory.Pods}, new(int32(4)) }).is(
			Running, "Running", runs4, ""),
		"not ready, seen by its Jobs alone": given(admitted, func(s *scene) { s.Unseen = []string{inventory.Pods} }).is(Starting, "PodsNotReady",
			"was started (node on flavor h100), and 0 of 4 pods are ready", "ask for the right to list pods, which says why they are not"),
		"without a queue": given(func(s *scene) { s.Workload, s.Job.Labels, s.Job.Spec.Suspend = nil, nil, nil }).is(NotManaged, "NoQueue",
			"names no queue: it runs outside of all quotas", labelRemedy),
		"without a queue, and its pods hang": given(admitted, withoutQueue, withPods(4, refusedBy("0/6 nodes are available: 6 node(s) had untolerated taint(s). preemption: none"))).stuck(
			NotManaged, "NoQueue", "names no queue: it was started (outside of all quotas), and 4 pods of Job llm-node-0: "+
				"Unschedulable (0/6 nodes are available: 6 node(s) had untolerated taint(s))",
			labelRemedy),
		"without a queue, and its pods are refused": given(admitted, withoutQueue, warned("FailedCreate", "denied by policy")).stuck(
			NotManaged, "NoQueue", "names no queue: it was started (outside of all quotas), and 4 pods not made yet"+podsDenied, refusedRemedy),
		"without a queue and suspended": given(func(s *scene) { s.Workload, s.Job.Labels = nil, nil }).is(NotManaged, "Suspended",
			"names no queue and is suspended by its user", "resume it (spec.suspend: false), or "+labelRemedy),
		"without a queue where all TrainJobs need one": given(func(s *scene) {
			s.Workload, s.Job.Labels = nil, nil
			s.Field.Set(&s.Job.Spec, []patch.Placement{patch.Gated("node")})
		}).stuck(Unqueued, "NoQueue", "is held at the admission gate and names no queue", labelRemedy),
		"just made": given(admitted, justMade).is(Unqueued, "JustMade", "has no Workload yet", ""),
		"just made, and Trainer has not made its JobSet": given(justMade).is(Unqueued, "AwaitsJobSet", noJobSetYet+"10s (the manager's waitForJobSet)", ""),
		"a minute old, and the manager waits for longer": given(madeBefore(time.Minute), func(s *scene) { s.Manager = waitingFor(5 * time.Minute) }).is(
			Unqueued, "AwaitsJobSet", noJobSetYet+"5m0s (the manager's waitForJobSet)", ""),
		"just made, and the manager's configuration cannot be read": given(justMade, func(s *scene) { s.Manager = nil }).is(Unqueued, "AwaitsJobSet",
			noJobSetYet+"the manager's waitForJobSet, 10s by default", ""),
		"a minute old, and the manager's configuration cannot be read": given(madeBefore(time.Minute), func(s *scene) { s.Manager = nil }).stuck(
			Unqueued, "NobodyReacts", "asks for queue gpus and has no Workload after 60s: nobody queues it, unless the manager's waitForJobSet is longer",
			"see that kueue-trainer runs: "+doctor),
		"just made, and nobody waits for its JobSet": given(justMade, func(s *scene) { s.Manager = waitingFor(0) }).is(Unqueued, "JustMade",
			"has no Workload yet", ""),
		"just made for another cluster, where its JobSet will be": given(elsewhereBy, justMade).is(Unqueued, "JustMade", "has no Workload yet", ""),
		"Trainer made its JobSet late, JobSet has not made its Jobs": given(admitted, madeBefore(time.Minute), func(s *scene) { s.Jobs, s.JobSet.CreationTimestamp = nil, metav1.NewTime(now) }).is(
			Unqueued, "AwaitsJobs", "is not queued yet: JobSet has not made its Jobs, without which it queues after 2s", ""),
		"just made, and JobSet has not made its Jobs": given(admitted, justMade, func(s *scene) { s.Jobs = nil }).is(Unqueued, "AwaitsJobs",
			"is not queued yet: JobSet has not made its Jobs, without which it queues after 2s", ""),
		"nobody makes a Workload": given(withoutWorkload).stuck(Unqueued, "NobodyReacts",
			"asks for queue gpus and has no Workload after 5m: nobody queues it", "see that kueue-trainer runs: "+doctor),
		"it gave its quota back, and queues again later": given(withoutWorkload, warned("CannotStart", "gives its quota back, could not start in 2m0s; queues again in 1m0s or when its spec is changed: exceeded quota")).is(
			Unqueued, "CannotStart", "is not queued: it gives its quota back, could not start in 2m0s; queues again in 1m0s or when its spec is changed: exceeded quota",
			`put that right, and it queues again by itself; to have it do so at once: kubectl -n team annotate trainjob llm try-again="$(date)" --overwrite`),
		"it gave its quota back, and should have queued again": given(withoutWorkload, warned("CannotStart", "gives its quota back, could not start in 2m0s; queues again in 10s or when its spec is changed: exceeded quota")).stuck(
			Unqueued, "NobodyReacts", "asks for queue gpus and has no Workload after 5m: nobody queues it", "see that kueue-trainer runs: "+doctor),
		"the manager said why it makes none": given(withoutWorkload, warned("InTreeActive", "two integrations")).stuck(Unqueued, "InTreeActive",
			"is not queued: two integrations", ""),
		"its runtime is missing": given(func(s *scene) { s.Workload, s.Undescribed = nil, missing }).stuck(Unqueued, "RuntimeMissing",
			"is not queued, because its pods cannot be told: runtime not found: there is no ClusterTrainingRuntime \"torch\"", ""),
		"its runtime went while it waits": given(taken("h100", 3), func(s *scene) { s.Undescribed = missing }).stuck(Waiting, "RuntimeMissing",
			needs32+"and its pods cannot be told any more: runtime not found: there is no ClusterTrainingRuntime \"torch\""+alone, ""),
		"a user who may not see Workloads": given(func(s *scene) { s.Workload, s.Unseen = nil, []string{inventory.Workloads} }).is(Unqueued, "Unseen",
			"is in a queue; you may not see its Workload", ""),
		"deactivated by somebody": given(switchedOff).stuck(Deactivated, "Deactivated",
			takenOut, `kubectl -n team patch workload trainjob-llm --type=merge -p '{"spec":{"active":true}}'`),
		"deactivated by Kueue, with pods left": given(admitted, withPods(2, runningPod), switchedOff, evicted("DeactivatedDueToRequeuingLimitExceeded", "too many tries")).stuck(
			Deactivated, "DeactivatedDueToRequeuingLimitExceeded", takenOut+" (too many tries); 2 pods still there, while its quota goes to others",
			anotherWorkload),
		"deactivated when its time was over": given(switchedOff, evicted("DeactivatedDueToMaximumExecutionTimeExceeded", "exceeding the maximum execution time")).stuck(
			Deactivated, "DeactivatedDueToMaximumExecutionTimeExceeded", takenOut+" (exceeding the maximum execution time)", anotherWorkload),
		"suspended by its user while it runs": given(admitted, withPods(4, runningPod), func(s *scene) { s.Job.Spec.Suspend = new(true) }).is(
			Stopping, "PodsLeft", "is suspended, and pods of its run are left (node on flavor h100); 4 pods still there, it keeps the quota until they are gone", ""),
		"preempted, and its pods are going": given(admitted, withPods(4, runningPod), pending("urgent", 100, minutesAgo(1)), preemptedBy("urgent", 1),
			with(kueue.WorkloadPreempted, kueue.InClusterQueueReason, "", 1)).is(Stopping, "Preempted",
			"was preempted by team/urgent (for its higher priority in the ClusterQueue); 4 pods still there, it keeps the quota until they are gone", ""),
		"preempted, and waiting again": given(taken("h100", 4), taken("a100", 2), preemptedBy("other-h100", 3)).is(Waiting, "QuotaInUse",
			needs32+"flavor h100: 0 of 32 GPUs are free; flavor a100: ClusterQueue gpus has 16 GPUs at the most, 1st of 1 pending; it was preempted by team/other-h100 3m ago", waitForEnd),
		"its LocalQueue is missing": given(func(s *scene) { s.inventory.LocalQueues[0].Name = "other" }).stuck(Waiting, "LocalQueueMissing",
			"names LocalQueue gpus, which does not exist in namespace team", "create it, or label the job with one that exists: other"),
		"its LocalQueue is stopped": given(queueHeld).stuck(Waiting, "LocalQueueStopped",
			"waits in LocalQueue gpus, which an admin has stopped (stopPolicy Hold)",
			`kubectl -n team patch localqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`),
		"its ClusterQueue is missing": given(withoutClusterQueues).stuck(Waiting, "ClusterQueueMissing",
			"waits in LocalQueue gpus, whose ClusterQueue gpus does not exist", "create ClusterQueue gpus, or name another LocalQueue: namespace team has none"),
		"its ClusterQueue is missing, beside another queue": given(withoutClusterQueues, func(s *scene) {
			s.inventory.ClusterQueues = []kueue.ClusterQueue{clusterQueue("other", "", quota("h100", "8"))}
			s.inventory.LocalQueues = append(s.inventory.LocalQueues, localQueue("dangling", "gone"), localQueue("other", "other"))
		}).stuck(Waiting, "ClusterQueueMissing",
			"waits in LocalQueue gpus, whose ClusterQueue gpus does not exist", "create ClusterQueue gpus, or name another LocalQueue: other"),
		"its ClusterQueue is stopped": given(func(s *scene) { s.inventory.ClusterQueues[0].Spec.StopPolicy = new(kueue.HoldAndDrain) }).stuck(
			Waiting, "ClusterQueueStopped", waits+", and the ClusterQueue is stopped by an admin (stopPolicy HoldAndDrain)",
			`kubectl patch clusterqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`),
		"its ClusterQueue is being deleted, which stops it": given(func(s *scene) {
			s.inventory.ClusterQueues[0].Spec.StopPolicy, s.inventory.ClusterQueues[0].DeletionTimestamp = new(kueue.HoldAndDrain), new(minutesAgo(1))
		}).stuck(Waiting, "ClusterQueueDeleted", waits+", and the ClusterQueue is being deleted: it goes with its last Workload",
			"create ClusterQueue gpus again when it is gone (kubectl get clusterqueue gpus), or name another LocalQueue: namespace team has none"),
		"its ClusterQueue is inactive": given(func(s *scene) {
			s.inventory.ClusterQueues[0].Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: "False", Message: "Can't admit new workloads: references missing ResourceFlavor(s): l40."}}
		}).stuck(Waiting, "ClusterQueueInactive",
			waits+", and the ClusterQueue is not active: Can't admit new workloads: references missing ResourceFlavor(s): l40.",
			"fix what the ClusterQueue names: kubectl describe clusterqueue gpus"),
		"its ClusterQueue takes other namespaces": given(func(s *scene) {
			s.inventory.ClusterQueues[0].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
			s.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
		}).stuck(Waiting, "NamespaceNotAllowed",
			waits+", whose namespaceSelector does not take namespace team",
			"label the namespace as spec.namespaceSelector of ClusterQueue gpus wants it, or widen the selector"),
		"a user who may not see ClusterQueues, one that is inactive": given(withoutClusterQueues, unseenKind(inventory.ClusterQueues), func(s *scene) {
			s.inventory.LocalQueues[0].Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: "False", Message: "Can't submit new workloads to clusterQueue"}}
		}).stuck(Waiting, "LocalQueueInactive",
			waits+", and the LocalQueue is not active: Can't submit new workloads to clusterQueue",
			"ask an admin to look at the ClusterQueue: kubectl describe clusterqueue gpus"),
		"a user who may not see ClusterQueues": given(withoutClusterQueues, unseenKind(inventory.ClusterQueues), unseenKind(inventory.Workloads), withoutQuota("couldn't assign flavors")).is(
			Waiting, "Unseen", needs32+"and Kueue says: couldn't assign flavors",
			"ask an admin to run this command: you may not see the ClusterQueue"),
		"a user who may not see what others have, of a job that Kueue has refused": given(taken("h100", 4), unseenKind(inventory.Workloads), refusedBefore(4*time.Minute, "Pending")).is(
			Waiting, "Unseen", needs32+"and Kueue says: resource cpu unavailable in ClusterQueue", askAdmin),
		"a user who may not see what others have, of a job that is not the first of a strict queue": given(unseenKind(inventory.Workloads), strict, func(s *scene) {
			s.Visible = &Position{Place: 2, Pending: 3, Source: Visibility}
		}).is(Waiting, "Unseen", needs32+"and Kueue has not looked at it yet, 2nd of 3 pending", askAdmin),
		"a user who may not see ClusterQueues, where Kueue tells the place": given(withoutClusterQueues, unseenKind(inventory.ClusterQueues), func(s *scene) {
			s.Visible = &Position{Place: 2, Source: Visibility}
		}).is(Waiting, "Unseen", needs32+"and Kueue has not looked at it yet, 2nd in its ClusterQueue", "ask an admin to run this command: you may not see the ClusterQueue"),
		"a user who may not see admission checks, of a job that Kueue has refused": given(withoutChecks, taken("h100", 4), refusedBefore(time.Minute, "Pending")).is(
			Waiting, "QuotaInUse", needs32+"flavor h100: 0 of 32 GPUs are free; "+a100TooSmall+alone, waitForEnd),
		"a user who may not see admission checks, of a job that fits": given(withoutChecks, refusedBefore(time.Minute, "Pending")).is(
			Waiting, "Unseen", needs32+"and Kueue says: resource cpu unavailable in ClusterQueue"+alone, "ask an admin to run this command: you may not see admissionchecks.kueue.x-k8s.io"),
		"a user who may not see what others have, of more than there ever is": given(unseenKind(inventory.Workloads), ofH100, func(s *scene) { s.Workload.Spec.PodSets[0].Count = 5 }).stuck(
			Waiting, "ExceedsQuota", waits+": needs 40 GPUs, flavor h100: ClusterQueue gpus has 32 GPUs at the most", raiseOrCut+"8 GPUs"),
		"quota in use": given(taken("h100", 3), pending("urgent", 100, minutesAgo(1)), pending("earlier", 0, minutesAgo(9)), pending("later", 0, minutesAgo(1))).is(
			Waiting, "QuotaInUse", needs32+"flavor h100: 8 of 32 GPUs are free; flavor a100: ClusterQueue gpus has 16 GPUs at the most, 3rd of 4 pending",
			waitForEnd+orRaise+" above that of those in front"),
		"quota in use by a cohort, which preempts for priority": given(taken("h100", 3), ofH100, func(s *scene) {
			s.inventory.ClusterQueues[0].Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority}
		}).is(Waiting, "QuotaInUse", needs32+"flavor h100: 8 of 32 GPUs are free"+alone, waitForEnd+orRaise),
		"quota in use, for a queue that takes back what it lent and no more": given(taken("h100", 3), ofH100, func(s *scene) {
			s.inventory.ClusterQueues[0].Spec.Preemption = &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyNever}
		}).is(Waiting, "QuotaInUse", needs32+"flavor h100: 8 of 32 GPUs are free"+alone, waitForEnd),
		"more than there ever is in its replicated jobs together": given(ofH100, withPodSets(podSet("launcher", 1), podSet("node", 4))).stuck(Waiting, "ExceedsQuota",
			waits+": needs 40 GPUs, flavor h100: ClusterQueue gpus has 32 GPUs at the most"+alone, raiseOrCut+"8 GPUs"),
		"more than the borrowing limit in its replicated jobs together": given(lent("16", "32", resource.NewQuantity(16, resource.DecimalSI), nil), withPodSets(podSet("launcher", 1), podSet("node", 4))).stuck(
			Waiting, "BorrowingLimit", waits+": needs 40 GPUs, flavor h100: ClusterQueue gpus has 16 GPUs of its own and may borrow no more than 16 GPUs, though cohort all has more"+alone,
			"raise the borrowingLimit of flavor h100 in ClusterQueue gpus, or create the job again, since spec.trainer cannot change, and ask for less"),
		"quota in use, and Kueue does not count all that it asks for": given(taken("h100", 4), ofH100, asking("rdma/hca", "1"), counting(configapi.Resources{ExcludeResourcePrefixes: []string{"rdma/"}})).is(
			Waiting, "QuotaInUse", needs32+"flavor h100: 0 of 32 GPUs are free"+alone, waitForEnd),
		"quota in use, for whom may not see what Kueue counts": given(taken("h100", 4), ofH100, asking("rdma/hca", "1"), unseenSettings,
			withoutQuota("insufficient unused quota for nvidia.com/gpu in flavor h100, 32 more needed")).is(Waiting, "Unseen",
			needs32+"and Kueue says: insufficient unused quota for nvidia.com/gpu in flavor h100, 32 more needed"+alone, "ask an admin to run this command: you may not see Kueue's configuration"),
		"a resource that its ClusterQueue does not have, as Kueue says to whom may not see what it counts": given(ofH100, asking("nvidia.com/gpus", "1"), unseenSettings,
			withoutQuota("resource nvidia.com/gpus unavailable in ClusterQueue")).stuck(Waiting, "ResourceNotInQueue", needs32+"ClusterQueue gpus has no quota for nvidia.com/gpus"+alone,
			"ask for what it has (nvidia.com/gpu), or add nvidia.com/gpus to a resource group of ClusterQueue gpus, or take the request out of the job or its runtime"),
		"more than there ever is": given(func(s *scene) { s.Workload.Spec.PodSets[0].Count = 5 }).stuck(Waiting, "ExceedsQuota",
			waits+": needs 40 GPUs, flavor h100: ClusterQueue gpus has 32 GPUs at the most; "+a100TooSmall+alone, raiseOrCut+"8 GPUs"),
		"Kueue stops others for it": given(taken("h100", 4), withoutQuota("couldn't assign flavors. Pending the preemption of 1 workload(s)")).is(
			Waiting, "Preempting", needs32+"and Kueue is stopping others for it"+alone, ""),
		"activated after Kueue had deactivated it": given(func(s *scene) {
			s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadRequeued, Status: "False", Reason: "DeactivatedDueToAdmissionCheck"}}
		}).stuck(Waiting, "NotRequeued", needs32+"and was activated after Kueue had deactivated it, which Kueue does not queue again", anotherWorkload),
		"it is tried again later": given(func(s *scene) {
			s.Workload.Status.RequeueState = &kueue.RequeueState{RequeueAt: new(minutesAgo(-1))}
		}).is(Waiting, "Backoff", needs32+"and is tried again in 60s", ""),
		"an admission check has rejected it": given(checked("budget", kueue.CheckStateRejected, "over budget")).stuck(
			Waiting, "AdmissionCheckRejected", needs32+"and admission check budget says Rejected: over budget", ""),
		"Kueue does not look": given().stuck(Waiting, "KueueSilent",
			needs32+"which would fit (node on flavor h100), and Kueue has not looked at it for 5m"+alone,
			"see that Kueue runs (kubectl -n kueue-system get pods); if it does, "+lookAgain),
		"Kueue looks at others of its queue first": given(taken("a100", 1), func(s *scene) {
			s.inventory.Workloads[0].Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
		}).is(Waiting, "Evaluating", needs32+"which fits now (node on flavor h100): Kueue looks at it soon"+alone, ""),
		"Kueue looks at nobody of its queue": given(taken("a100", 1), func(s *scene) {
			s.inventory.Workloads[0].Status.Conditions[0].LastTransitionTime = metav1.NewTime(now)
			s.inventory.Workloads[0].Status.Admission.ClusterQueue = "other"
		}).stuck(Waiting, "KueueSilent",
			needs32+"which would fit (node on flavor h100), and Kueue has not looked at it for 5m"+alone,
			"see that Kueue runs (kubectl -n kueue-system get pods); if it does, "+lookAgain),
		"Kueue admits nobody before the pods of others are ready": given(taken("a100", 1), func(s *scene) {
			s.Kueue = &configapi.Configuration{WaitForPodsReady: &configapi.WaitForPodsReady{BlockAdmission: new(true)}}
		}).is(Waiting, "WaitingForPodsReady", needs32+othersNotReady+alone, whyNotReady),
		"Kueue admits nobody before the pods of others are ready, as it says to whom may not see its configuration": given(taken("a100", 1), unseenSettings,
			withoutQuota("waiting for all admitted workloads to be in PodsReady condition")).is(Waiting, "WaitingForPodsReady", needs32+othersNotReady+alone, whyNotReady),
		"the pods of others are ready": given(taken("a100", 1), func(s *scene) {
			s.Kueue = &configapi.Configuration{WaitForPodsReady: &configapi.WaitForPodsReady{BlockAdmission: new(true)}}
			setCondition(&s.inventory.Workloads[0], kueue.WorkloadPodsReady, "", "", metav1.NewTime(now))
			s.Workload.CreationTimestamp = metav1.NewTime(now)
		}).is(Waiting, "Evaluating", needs32+"which fits now (node on flavor h100): Kueue looks at it soon"+alone, ""),
		"it claims devices that Kueue does not know": given(refusedBefore(4*time.Minute, kueue.WorkloadInadmissible), func(s *scene) {
			s.Workload.Status.Conditions[0].Message = "DeviceClass gpu.nvidia.com is not mapped"
			s.Workload.Status.Conditions = append(s.Workload.Status.Conditions, metav1.Condition{Type: kueue.WorkloadRequeued, Status: "False", Reason: kueue.WorkloadInadmissible})
		}).stuck(Waiting, "KueueRefuses", needs32+"and Kueue does not queue it: DeviceClass gpu.nvidia.com is not mapped",
			"put right what Kueue says, in the resource claims of the job's runtime, or in deviceClassMappings of Kueue's configuration"),
		"Kueue is about to look": given(func(s *scene) { s.Workload.CreationTimestamp = metav1.NewTime(now) }).is(Waiting, "Evaluating",
			needs32+"which fits now (node on flavor h100): Kueue looks at it soon"+alone, ""),
		"Kueue goes by more than what is seen": given(refusedBefore(30*time.Second, "Pending")).is(Waiting, "KueueRefuses",
			needs32+"which would fit by what is seen here (node on flavor h100), but Kueue says: resource cpu unavailable in ClusterQueue"+alone,
			"if Kueue goes on saying so, look for what else it goes by, such as defaults of a LimitRange: kubectl -n team describe limitranges"),
		"Kueue has refused it minutes ago, and quota is free": given(refusedBefore(4*time.Minute, "Pending")).is(Waiting, "KueueRefuses",
			needs32+"which would fit by what is seen here (node on flavor h100), but Kueue says: resource cpu unavailable in ClusterQueue"+alone,
			lookAgain+"; if it says so again, look for what else it goes by, such as defaults of a LimitRange: kubectl -n team describe limitranges"),
		"Kueue has refused it a moment ago": given(refusedBefore(5*time.Second, "Pending")).is(Waiting, "Evaluating",
			needs32+"which fits now (node on flavor h100): Kueue looks at it soon"+alone, ""),
		"Kueue is about to look again": given(refusedBefore(30*time.Second, kueue.WorkloadQuotaReservedReasonPendingEvaluation)).is(Waiting, "Evaluating",
			needs32+"which fits now (node on flavor h100): Kueue looks at it soon"+alone, ""),
		"running, after one of its replicated jobs is done": given(initialized, admitted, withPods(3, runningPod), func(s *scene) { s.Jobs[0].Spec.Parallelism = new(int32(3)) }).is(
			Running, "Running", "runs with 3 pods in queue gpus (ClusterQueue gpus): 24 GPUs, initializer on flavor h100, node on flavor h100", ""),
		"waiting again, after one of its replicated jobs was done": given(initialized, taken("h100", 2)).is(Waiting, "QuotaInUse",
			waits+": needs 24 GPUs, flavor h100: 16 of 32 GPUs are free; "+a100TooSmall+alone, waitForEnd),
		"behind others in a strict queue": given(pending("big", 0, minutesAgo(9)), strict, withoutQuota("")).is(Waiting, "BehindOthers",
			needs32+"which would fit (node on flavor h100), but Kueue gives it to team/big first, 2nd of 2 pending",
			"wait, or give the job a higher priority than the one before it"),
		"behind others in a strict queue, where Kueue's decision is not known": given(pending("big", 0, minutesAgo(9)), strict, func(s *scene) { s.PriorityUnseen = true }).is(Waiting, "BehindOthers",
			needs32+"which would fit (node on flavor h100), but ClusterQueue gpus is strictly first in, first out and team/big is before it, 2nd of 2 pending",
			"wait, or set queueingStrategy of ClusterQueue gpus to BestEffortFIFO"),
		"behind one that cannot start in a strict queue": given(pending("big", 0, minutesAgo(9)), strict, taken("h100", 1), func(s *scene) { s.Workload.Spec.PodSets[0].Count = 1 }).is(
			Waiting, "BehindOthers", waits+": needs 8 GPUs, and ClusterQueue gpus is strictly first in, first out, "+
				"and team/big (priority 0) is before it and cannot start, 2nd of 2 pending",
			behindRemedy),
		"about to preempt": given(taken("h100", 4), preempting, func(s *scene) { s.Workload.Spec.Priority = new(int32(10)) }).is(
			Waiting, "Preempts", needs32+"and Kueue is about to make room by preempting team/other-h100 (priority 0, ClusterQueue gpus: lower in the same queue)"+alone, ""),
		"perhaps about to preempt, for whom may not read priorities": given(taken("h100", 4), preempting, func(s *scene) { s.Workload.Spec.Priority, s.PriorityUnseen = new(int32(10)), true }).is(
			Waiting, "QuotaInUse", needs32+"flavor h100: 0 of 32 GPUs are free; "+a100TooSmall+alone, waitForEnd+orRaise),
		"managed without a queue": given(func(s *scene) { s.Workload.Spec.QueueName, s.Job.Labels = "", nil }).stuck(Waiting, "NoQueue",
			"names no queue, and Kueue holds it all the same (manageJobsWithoutQueueName)", labelRemedy),
		"quota reserved, a check is open": given(reserved, checked("budget", kueue.CheckStatePending, "asking"), func(s *scene) {
			s.inventory.AdmissionChecks = []kueue.AdmissionCheck{activeCheck("budget")}
			s.inventory.AdmissionChecks[0].Spec.ControllerName = "example.com/budget"
		}).is(Reserved, "AdmissionCheckPending", waitsForCheck+"budget of controller example.com/budget is Pending (asking)", ""),
		"quota reserved, nobody looks after the check": given(reserved, checked("budget", kueue.CheckStatePending, "")).stuck(
			Reserved, "AdmissionCheckInactive", waitsForCheck+"budget is Pending: admission check budget is not active: it does not exist",
			"see that the controller of AdmissionCheck budget runs: kubectl describe admissioncheck budget"),
		"quota reserved, and Kueue is about to look for nodes": given(reserved, delayed(1)).is(Reserved, "TopologyPending",
			"has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: its admission checks are Ready, and Kueue finds no nodes for it in the topology", ""),
		"quota reserved, and Kueue finds no nodes": given(reserved, delayed(4), warned("SecondPassFailed", `topology "racks" allows to fit only 2 out of 4 pod(s)`)).stuck(Reserved, "TopologyPending",
			"has quota in queue gpus (ClusterQueue gpus), node on flavor h100, and waits to be admitted: its admission checks are Ready, and Kueue finds no nodes for it in the topology; "+
				`topology "racks" allows to fit only 2 out of 4 pod(s)`,
			"see that the nodes that were made for it are ready, free, and have the labels of the flavor and its topology: kubectl describe resourceflavors,topologies"),
		"admitted and about to be started": given(placed, atOnce).is(Starting, "Placing", "is admitted (node on flavor h100) and about to be started", ""),
		"admitted and not started": given(placed).stuck(Starting, "NotStarted",
			"was admitted (node on flavor h100) 2m ago, holds its quota and was not started", "see that kueue-trainer and Trainer run: "+doctor),
		"admitted to what contradicts it": given(placed, warned("PlacementRefused", "pool is a, the admission wants h100")).stuck(
			Starting, "PlacementRefused", cannotStart+"pool is a, the admission wants h100", ""),
		"admitted, and Trainer is of another release": given(placed, warned("TrainerBehind", "starts when the running Trainer is seen to read spec.runtimePatches")).stuck(
			Starting, "TrainerBehind", cannotStart+"starts when the running Trainer is seen to read spec.runtimePatches", ""),
		"resumed, and Trainer does not resume the JobSet": given(admitted, func(s *scene) { s.JobSet.Spec.Suspend = new(true) }, warned("JobSetOutdated", "undo the edit")).stuck(
			Starting, "JobSetOutdated", cannotStart+"undo the edit", ""),
		"resumed, and Trainer is refused what it makes of the JobSet": given(admitted, func(s *scene) { s.JobSet.Spec.Suspend = new(true) }, warned("TrainJobResourcesCreationFailed", "field is immutable")).stuck(
			Starting, "JobSetRefused", cannotStart+"Trainer cannot change its JobSet: field is immutable", refusedRemedy),
		"started, no pods yet": given(admitted, atOnce).is(Starting, "PodsMissing", notMade, ""),
		"started, and no pods come": given(admitted).stuck(Starting, "PodsMissing",
			notMade, "see what its Jobs say: kubectl -n team describe jobs -l jobset.sigs.k8s.io/jobset-name=llm"),
		"its pods have failed, and others are to come": given(admitted, withPods(4, failedPod)).is(Starting, "PodsMissing", notMade+allFailed, ""),
		"its pods have failed long ago, and no others come": given(admitted, withPods(4, failedPod), func(s *scene) { s.Now = now.Add(12 * time.Minute) }).stuck(
			Starting, "PodsMissing", notMade+allFailed, "see what its Jobs say: kubectl -n team describe jobs -l jobset.sigs.k8s.io/jobset-name=llm"),
		"its pods have failed, and others are refused": given(admitted, withPods(4, failedPod), warned("FailedCreate", "denied by policy")).stuck(
			Starting, "PodsRefused", notMade+allFailed+podsDenied, refusedRemedy),
		"the pods of some indexes have failed for good": given(admitted, withPods(1, runningPod), withPods(3, failedPod), func(s *scene) { s.Jobs[0].Status.FailedIndexes = new("1,2-3") }).is(
			Running, "Running", "runs with 1 pod in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100", ""),
		"ready, for whom may not see Jobs": given(admitted, withPods(4, runningPod), readyInTrainer, unlisted(childJobs)).is(Running, "Running", runs4, ""),
		"started, for whom may not see Jobs": given(admitted, withPods(4, runningPod), unlisted(childJobs)).is(
			Starting, "Unseen", startedUnseen+"jobs.batch", "ask for the right to list them"),
		"ready, for whom may not see JobSets": given(admitted, withPods(4, runningPod), readyInTrainer, unlisted(jobSets, childJobs)).is(Running, "Running", runs4, ""),
		"ready, for whom may not see anything of it": given(admitted, readyInTrainer, unlisted(jobSets, childJobs, inventory.Pods)).is(
			Running, "Running", "runs in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100", ""),
		"started, for whom may not see anything of it": given(admitted, unlisted(jobSets, childJobs, inventory.Pods)).is(
			Starting, "Unseen", startedUnseen+"jobsets.jobset.x-k8s.io", "ask for the right to list them"),
		"pods that no node takes, for whom may not see JobSets": given(admitted, withPods(4, refusedBy("0/6 nodes are available: 6 Too many pods. preemption: none")), unlisted(jobSets)).is(
			Starting, "TooManyPods", fourPods+"TooManyPods (0/6 nodes are available: 6 Too many pods)",
			"wait until pods on these nodes have ended, or raise maxPods of their kubelets; pods in coveredResources of the ClusterQueue has Kueue count them"),
		"pods behind our gate": given(admitted, withPods(4, gate(patch.AdmissionGate))).stuck(Starting, "AdmissionGate",
			fourPods+"AdmissionGate (scheduling gate kueue-trainer.dev/admission)",
			"kueue-trainer frees them when their Workload is admitted: kubectl trainjob doctor tells whether it runs"),
		"pods behind somebody's gate": given(admitted, withPods(4, gate("example.com/wait"))).stuck(Starting, "SchedulingGate",
			fourPods+"SchedulingGate (scheduling gate example.com/wait)", "whoever set the gate has to take it off"),
		"pods that no node has room for": given(admitted, oneNodeLess, withPods(3, runningPod), withPods(1, func(p *corev1.Pod) {
			p.Name = "llm-node-0-3"
			refusedBy("0/6 nodes are available: 6 Insufficient nvidia.com/gpu. preemption: none")(p)
		})).stuck(Starting, "Unschedulable",
			"was started (node on flavor h100), and 1 pod of Job llm-node-0: Unschedulable (0/6 nodes are available: 6 Insufficient nvidia.com/gpu)",
			"the quota is more than the nodes have room for: kubectl trainjob pools shows both"),
		"pods that find free GPUs on no single node": given(admitted, withPods(4, refusedBy(noGPUs+". preemption: none"))).stuck(Starting, "Unschedulable",
			fourPods+"Unschedulable ("+noGPUs+")",
			"free GPUs of flavor h100 are spread over nodes, or pods without a queue have them: requeue a small job there (kubectl trainjob requeue), or give the flavor a topology (kubectl trainjob pools generate --topology)"),
		"pods of a flavor that was changed since": given(admitted, withPods(4, refusedBy("0/6 nodes are available: 6 node(s) didn't match Pod's node affinity/selector. preemption: none")), func(s *scene) {
			s.inventory.Flavors[0].Spec.NodeLabels = map[string]string{"rack": "h100-rack-0"}
		}).stuck(Starting, "Unschedulable", fourPods+"Unschedulable (0/6 nodes are available: 6 node(s) didn't match Pod's node affinity/selector)",
			"ResourceFlavor h100 was changed since, and the pods keep its old node selector: kubectl trainjob requeue -n team llm"),
		"pods that lack a node with a taint": given(admitted, withPods(4, refusedBy(noGPUs+". preemption: none")), taintedNode).stuck(Starting, "Unschedulable",
			fourPods+"Unschedulable ("+noGPUs+")", "ask who set taint repair=gpu:NoSchedule on node h100-1 to take it off"),
		"pods that lack a node with a taint, for whom may not see nodes": given(admitted, taintedNode, withPods(4, refusedBy("0/1 nodes are available: 1 node(s) had untolerated taint {repair: gpu}. preemption: none")), func(s *scene) {
			s.inventory.Nodes = nil
			unseenKind(inventory.Nodes)(s)
		}).stuck(Starting, "Unschedulable", fourPods+"Unschedulable (0/1 nodes are available: 1 node(s) had untolerated taint {repair: gpu})",
			"ask an admin who set taint {repair: gpu}, to take it off"),
		"pods that no node takes, for whom may not see nodes": given(admitted, withPods(4, refusedBy("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: none")), func(s *scene) {
			s.inventory.Nodes = nil
			unseenKind(inventory.Nodes)(s)
		}).stuck(Starting, "Unschedulable", fourPods+"Unschedulable (0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector)", askWhich+"nodes"),
		"pods that no node takes, for whom may not see flavors either": given(admitted, withPods(4, refusedBy("0/1 nodes are available: 1 node(s) had untolerated taint {repair: gpu}. preemption: none")), func(s *scene) {
			s.inventory.Flavors, s.inventory.Nodes = nil, nil
			s.inventory.Unseen = []string{inventory.Flavors, inventory.Nodes}
		}).stuck(Starting, "Unschedulable", fourPods+"Unschedulable (0/1 nodes are available: 1 node(s) had untolerated taint {repair: gpu})",
			askWhich+"resourceflavors.kueue.x-k8s.io and nodes"),
		"pods whose nodes are cordoned": given(admitted, cordoned(0, 1, 2, 3), withPods(4, refusedBy("0/6 nodes are available: 4 node(s) were unschedulable. preemption: none"))).is(
			Starting, "NodesUnavailable", fourPods+"Unschedulable (0/6 nodes are available: 4 node(s) were unschedulable); "+
				"the flavor's nodes that would do are cordoned: Kueue does not look at that, so pods stay Pending",
			"wait until they are back, or have whoever cordoned them end that: kubectl uncordon h100-0"),
		"pods whose image cannot be had": given(admitted, withPods(4, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
		})).stuck(Starting, "ImagePullBackOff", fourPods+"ImagePullBackOff (no such image)", "kubectl -n team describe pod llm-node-0-0"),
		"running":              given(admitted, withPods(4, runningPod)).is(Running, "Running", runs4, ""),
		"a manifest that fits": given(manifestOf).is(NotCreated, "Fits", couldHave32, ""),
		"a manifest whose nodes are made on request": given(manifestOf, withoutH100, checkedBy(kueue.ProvisioningRequestControllerName)).is(
			NotCreated, "Fits", couldHave32, ""),
		"a manifest that would wait": given(taken("h100", 1), manifestOf).is(NotCreated, "QuotaInUse",
			wouldWait+"32 GPUs, flavor h100: 24 of 32 GPUs are free; "+a100TooSmall, waitForEnd),
		"a manifest whose pods no node would take": given(manifestOf, func(s *scene) { s.PodSets[0].Template.Spec.NodeSelector = map[string]string{"disk": "fast"} }).stuck(
			NotCreated, "SelectorMismatch", couldHave32+", but node selector disk=fast matches no node of the flavor: Kueue does not look at that, so pods stay Pending",
			"take node selector disk=fast out of replicated job node, or label nodes of flavor h100 so"),
		"a manifest without a queue": given(manifestOf, func(s *scene) { s.Job.Labels, s.Kueue = nil, &configapi.Configuration{} }).is(
			NotCreated, "NoQueue", "names no queue, so it would start at once, outside of all quotas", labelRemedy),
		"a manifest without a queue, which Kueue manages": given(manifestOf, managesAll).stuck(NotCreated, "NoQueue",
			"names no queue, and Kueue manages jobs without one (manageJobsWithoutQueueName): it would be held and never start", labelRemedy),
		"a manifest without a queue, in a namespace that is not Kueue's": given(manifestOf, managesAll, func(s *scene) { s.Namespace.Labels = nil }).is(
			NotCreated, "NoQueue", "names no queue, so it would start at once, outside of all quotas", labelRemedy),
		"a manifest with one, in a namespace that is not Kueue's": given(manifestOf, optsOut).is(NotCreated, "NamespaceNotManaged",
			notManagedHere+"it would start at once, outside of all quotas", labelNamespace),
		"in a namespace that is not Kueue's": given(optsOut, func(s *scene) { s.Workload, s.Job.Spec.Suspend = nil, nil }).is(
			NotManaged, "NamespaceNotManaged", notManagedHere+"it runs outside of all quotas", labelNamespace),
		"in a namespace that is not Kueue's, by the word of an event": given(warned("NamespaceNotManaged", "names queue gpus"), func(s *scene) { s.Workload, s.Job.Spec.Suspend = nil, nil }).is(
			NotManaged, "NamespaceNotManaged", notManagedHere+"it runs outside of all quotas", "ask an admin to have Kueue manage the namespace"),
		"suspended in a namespace that is not Kueue's": given(optsOut, func(s *scene) { s.Workload = nil }).is(NotManaged, "NamespaceNotManaged",
			notManagedHere+"it is suspended and waits for nobody",
			"resume it (spec.suspend: false) to run it outside of all quotas, or "+labelNamespace),
		"since before its namespace was Kueue's": given(admitted, optsOut, func(s *scene) {
			s.Namespace.Labels = map[string]string{"for": "teams"}
			s.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(minutesAgo(1)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:for":{}}}}`)}}
			s.Workload, s.Job.Spec.Suspend, s.Job.Spec.RuntimePatches = nil, nil, nil
		}).is(NotManaged, "BeganUnmanaged", "runs outside of all quotas: it began before Kueue managed its namespace", "suspend it, and it queues"),
		"a manifest without a queue, and nobody to say what Kueue does": given(manifestOf, func(s *scene) { s.Job.Labels = nil }).is(
			NotCreated, "NoQueue", "names no queue; whether it would start at once or be held depends on Kueue's manageJobsWithoutQueueName, which cannot be seen",
			labelRemedy),
		"an urgent manifest that would preempt": given(manifestOf, taken("h100", 4), preempting, func(s *scene) { s.Priority = 10 }).is(
			NotCreated, "Preempts", "asks for 32 GPUs and would get them in queue gpus (ClusterQueue gpus) by preempting team/other-h100 (priority 0, ClusterQueue gpus: lower in the same queue): node on flavor h100", ""),
		"a manifest behind the blocked head of a strict queue": given(manifestOf, pending("big", 0, minutesAgo(9)), strict, taken("h100", 1), ofOneNode).is(
			NotCreated, "BehindOthers", wouldWait+"8 GPUs, and ClusterQueue gpus is strictly first in, first out, and team/big (priority 0) is before it and cannot start",
			behindRemedy),
		"a manifest past the blocked head of another queue": given(manifestOf, pending("big", 0, minutesAgo(9)), taken("h100", 1), ofOneNode).is(
			NotCreated, "Fits", "asks for 8 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100", ""),
		"a manifest that would borrow what another keeps for itself": given(manifestOf, pending("big", 0, minutesAgo(9)), taken("h100", 1), strict, borrower(1)).is(
			NotCreated, "QuotaInUse", "would wait in queue guests (ClusterQueue guests): asks for 8 GPUs, which would fit (node on flavor h100), "+
				"but Kueue keeps it for team/big (priority 0): Workload no longer fits after processing another workload",
			"wait, or give the job a higher priority than the one before it"),
		"a manifest behind one that would borrow what another keeps": given(manifestOf, pending("big", 0, minutesAgo(9)), taken("h100", 1), strict, borrower(1), func(s *scene) {
			s.inventory.Workloads = append(s.inventory.Workloads, *waitingWorkload("guest", "guests", 3, minutesAgo(8)))
		}).is(NotCreated, "BehindOthers",
			"would wait in queue guests (ClusterQueue guests): asks for 8 GPUs, "+
				"and team/guest (priority 0) is before it in ClusterQueue guests and cannot start: others keep what it would take", "wait, or give the job a higher priority than the one in front"),
		"a manifest of one who does not see what others have": given(manifestOf, unseenKind(inventory.Workloads)).is(NotCreated, "Unseen",
			"asks for 32 GPUs in queue gpus (ClusterQueue gpus); whether they are free cannot be told, because you may not see what others have",
			"ask an admin to run this command, or submit the job and explain it by its name"),
		"a manifest of one who does not see the nodes of a topology": given(onlyTopologies, manifestOf, unseenKind(inventory.Nodes), func(s *scene) { s.inventory.Nodes = nil }).is(NotCreated, "Unseen",
			"asks for 32 GPUs in queue gpus (ClusterQueue gpus); whether they are free cannot be told, because you may not see nodes",
			"ask an admin to run this command, or submit the job and explain it by its name"),
		"a manifest of one who does not see topologies, where quota is in use": given(onlyTopologies, manifestOf, unseenKind(inventory.Topologies), taken("h100", 4), func(s *scene) { s.inventory.Topologies = nil }).is(NotCreated, "QuotaInUse",
			wouldWait+"32 GPUs, flavor h100: 0 of 32 GPUs are free; "+a100TooSmall, waitForEnd),
		"a manifest of one who does not see admission checks, where quota is in use": given(manifestOf, withoutChecks, taken("h100", 4)).is(NotCreated, "QuotaInUse",
			wouldWait+"32 GPUs, flavor h100: 0 of 32 GPUs are free; "+a100TooSmall, waitForEnd),
		"a manifest for a stopped queue": given(manifestOf, queueHeld).stuck(NotCreated, "LocalQueueStopped",
			"would not start: it waits in LocalQueue gpus, which an admin has stopped (stopPolicy Hold)",
			`kubectl -n team patch localqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`),
	}, StateOf, cmpopts.IgnoreFields(State{}, "Since", "Cause", "Hidden"))
}

// TestRefused is about a job that fits by what is seen, and that Kueue's scheduler would refuse.
func TestRefused(t *testing.T) {
	for message, want := range map[string]State{
		"insufficient unused quota for cpu in flavor h100, 1 more needed":                                                            {Reason: "QuotaInUse", Remedy: waitForEnd},
		"flavor a: untolerated taint {gone NoSchedule} in flavor a; insufficient unused quota for cpu in flavor h100, 1 more needed": {Reason: "QuotaInUse", Remedy: waitForEnd},
		"resource cpu unavailable in ClusterQueue":                                                                                   {Reason: "KueueRefuses", Stuck: true, Remedy: rightRefusal},
		"untolerated taint {gone NoSchedule} in flavor h100":                                                                         {Reason: "KueueRefuses", Stuck: true, Remedy: rightRefusal},
		"current podset request (11) > maximum capacity (10)":                                                                        {Reason: "KueueRefuses", Stuck: true, Remedy: rightRefusal},
		"couldn't assign flavors: flavor h100 doesn't match node affinity":                                                           {Reason: "KueueRefuses", Stuck: true, Remedy: rightRefusal},
	} {
		t.Run(message, func(t *testing.T) {
			want.Message = "Kueue would say: " + message
			got := newScene().facts(t).refused(&scheduler.Decision{Outcome: scheduler.Refuses, Message: message})
			expect.Same(t, "Unexpected state", &want, got)
		})
	}
}

const rightRefusal = "put right what Kueue says, in the job's runtime or patch, or in ClusterQueue gpus and its flavors"

func TestGPUs(t *testing.T) {
	expect.Rows(t, map[string]row[int64]{
		"all of them":                       {want: 32},
		"without those of what is done":     {scene: changes{initialized, placed}, want: 24},
		"without some pods of one":          {scene: changes{func(s *scene) { s.Workload.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 3}} }}, want: 8},
		"all of them, when the job is done": {scene: changes{initialized, placed, finishedByHand}, want: 32},
	}, func(t *testing.T, tc row[int64]) {
		expect.Same(t, "Unexpected GPUs", map[corev1.ResourceName]int64{kit.GPU: tc.want}, newScene(tc.scene...).facts(t).GPUs())
	})
	huge := kit.PodSet("node", 2000, string(kit.GPU), "9000000000000000")
	expect.Same(t, "Unexpected GPUs of one that asks for more than there are numbers", int64(math.MaxInt64), sumOf([]kueue.PodSet{huge, huge})[kit.GPU])
}

func activeCheck(name string) kueue.AdmissionCheck {
	check := kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: "True"}}
	return check
}

const behindRemedy = "wait, give the job a higher priority than the one in front, or set queueingStrategy of ClusterQueue gpus to BestEffortFIFO"

// naming has the job name a priority class, and classes are those that there are.
func naming(class string) func(*scene) {
	return func(s *scene) { s.Job.Labels[kueueconstants.WorkloadPriorityClassLabel] = class }
}

func classes(names ...string) func(*scene) {
	return func(s *scene) {
		s.Classes = &kueue.WorkloadPriorityClassList{}
		for _, name := range names {
			s.Classes.Items = append(s.Classes.Items, *kit.Priority(name, 1000))
		}
	}
}

// manifestOf makes a manifest of the job.
func manifestOf(s *scene) { s.Job.UID, s.Workload = "", nil }

func unseenSettings(s *scene) { s.KueueUnseen = "configmaps of namespace kueue-system" }

func withoutClusterQueues(s *scene) { s.inventory.ClusterQueues = nil }

// refusedBefore is the job to which Kueue has given no quota since a while.
func refusedBefore(ago time.Duration, reason string) func(*scene) {
	return func(s *scene) {
		s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason,
			Message: "resource cpu unavailable in ClusterQueue", LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
}

// initialized is the job of two replicated jobs, of which the first is done.
func initialized(s *scene) {
	s.Workload.Spec.PodSets = []kueue.PodSet{podSet("initializer", 1), podSet("node", 3)}
	s.Workload.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "initializer", Count: 1}}
}

const (
	othersNotReady = "which would fit (node on flavor h100), but Kueue admits nobody before the pods of team/other-a100 are ready (waitForPodsReady.blockAdmission)"
	whyNotReady    = "wait, or see why they are not ready"
	allFailed      = "; 4 pods of Job llm-node-0: Failed (evicted)"
	askWhich       = "ask an admin which of this it is, or for ClusterRole kueue-trainer-queues-viewer: you may not see "
	startedUnseen  = "was started (node on flavor h100), and whether all of its pods run cannot be told, because you may not list "
)

// failedPod is one that has failed, of which the Job controller makes another.
func failedPod(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Message = corev1.PodFailed, "evicted" }

// readyInTrainer has Trainer say that the job's pods are ready.
func readyInTrainer(s *scene) {
	s.Job.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(int32(1)), Active: new(int32(1))}}
}

// unlisted takes away what the user may not list of what was made of the job.
func unlisted(kinds ...string) func(*scene) {
	return func(s *scene) {
		s.Unseen = kinds
		if !s.Saw(jobSets) {
			s.JobSet = nil
		}
		if !s.Saw(childJobs) {
			s.Jobs = nil
		}
	}
}

// withoutChecks has the ClusterQueue name an admission check that the user may not see.
func withoutChecks(s *scene) {
	checkedBy("x")(s)
	s.inventory.AdmissionChecks = nil
	unseenKind(inventory.AdmissionChecks)(s)
}

// delayed is the job whose admission check has been Ready for some minutes, and that Kueue has yet to find nodes for.
func delayed(minutes int) func(*scene) {
	return func(s *scene) {
		checked("nodes", kueue.CheckStateReady, "")(s)
		s.Workload.Status.AdmissionChecks[0].LastTransitionTime = minutesAgo(minutes)
		s.Workload.Status.Admission.PodSetAssignments[0].DelayedTopologyRequest = new(kueue.DelayedTopologyRequestStatePending)
	}
}

func ofOneNode(s *scene) { s.PodSets = []kueue.PodSet{podSet("node", 1)} }

func strict(s *scene) { s.inventory.ClusterQueues[0].Spec.QueueingStrategy = kueue.StrictFIFO }

// borrower has the job ask for nodes in a ClusterQueue of the same cohort without quota.
func borrower(nodes int32) func(*scene) {
	return func(s *scene) {
		s.inventory.ClusterQueues[0].Spec.CohortName = "all"
		ofH100(s)
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

// optsOut has Kueue manage namespaces for teams, of which the job's is none.
func optsOut(s *scene) {
	managed := s.Job.Labels
	managesAll(s)
	s.Kueue.ManageJobsWithoutQueueName, s.Job.Labels, s.Namespace.Labels = false, managed, nil
}

const (
	notManagedHere = "names queue gpus, but Kueue does not manage namespace team (managedJobsNamespaceSelector): "
	labelNamespace = "ask an admin to have Kueue manage the namespace: kubectl label namespace team for=teams"
)

const refusedRemedy = "change what the message names: the runtime or a patch of the job, or who refuses it, and it is tried again; what is in spec.trainer takes another job"

// ofTrainer has the job set image, env and number of nodes, beside a container of the runtime's.
func ofTrainer(s *scene) {
	s.Job.Spec.Trainer = &trainer.Trainer{Image: new("torch"), Env: []corev1.EnvVar{{Name: "MY VAR"}}, NumNodes: new(int32(4))}
	rj := &s.JobSet.Spec.ReplicatedJobs[0]
	rj.Template.Spec.Parallelism = new(int32(4))
	rj.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy"}, {Name: "node"}}
}

// dependent adds a replicated job that waits for the first, which is complete.
func dependent(s *scene) {
	s.JobSet.Spec.ReplicatedJobs = append(s.JobSet.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{
		Name: "launcher", Replicas: 1, DependsOn: []jobsetapi.DependsOn{{Name: s.JobSet.Spec.ReplicatedJobs[0].Name, Status: jobsetapi.DependencyComplete}},
		Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: new(int32(3)), Completions: new(int32(3))}},
	})
	s.Jobs[0].Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
}

func elsewhereBy(s *scene) { s.Job.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }

func prebuiltMissing(s *scene) {
	s.Workload = nil
	s.Job.Labels[kueueconstants.PrebuiltWorkloadLabel] = "mine"
}

var finishedByHand = with(kueue.WorkloadFinished, "ByHand", "it was in the way", 1)

// markedEnded has the job say that one with this UID has ended.
func markedEnded(uid string) func(*scene) {
	return func(s *scene) { s.Job.Annotations = map[string]string{"kueue-trainer.dev/ended": uid} }
}

func withoutQueue(s *scene) { s.Workload, s.Job.Labels = nil, nil }

const noGPUs = "0/6 nodes are available: 6 Insufficient nvidia.com/gpu"

// oneNodeLess leaves flavor h100 with fewer GPUs than its quota.
func oneNodeLess(s *scene) { s.inventory.Nodes = s.inventory.Nodes[1:] }

func taintedNode(s *scene) {
	s.inventory.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "repair", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
}

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
