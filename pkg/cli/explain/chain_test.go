// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
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
		inWestHere = "  Cluster west Assigned"
	)
	evictedHere := changes{admitted, withPods(4, runningPod), evicted(kueue.WorkloadEvictedByPreemption, "")}
	eachScene(t, "chain", map[string]row[[]string]{
		"just made": {changes{withoutWorkload}, []string{"TrainJob llm Suspended: a Workload", "  Workload - Missing: kueue-trainer to make it", noJobSet}},
		"in a namespace that Kueue does not manage": {changes{withoutWorkload, warned("NamespaceNotManaged", "names queue gpus")},
			[]string{"TrainJob llm Suspended", "  Workload - Missing", noJobSet}},
		"stopped by its user": {changes{taken("h100", 3), ofH100, admitted, func(s *scene) {
			s.Job.Spec.Suspend, s.Job.Labels["kueue.x-k8s.io/queue-name"] = ptr.To(true), "gpus.held"
		}}, []string{stops, hasQuota, jobSet, podsToCome}},
		"waiting for quota": {changes{taken("h100", 3), ofH100, admitted, func(s *scene) {
			s.Workload.Status = kueue.WorkloadStatus{}
			s.Job.Spec.Suspend, s.JobSet.Spec.Suspend, s.Jobs[0].Spec.Suspend = ptr.To(true), ptr.To(true), ptr.To(true)
		}}, []string{queues, lacksQuota, "  JobSet llm Suspended: its TrainJob to be resumed", "    Job llm-node-0 Suspended: its JobSet to be resumed"}},
		"in a stopped queue": {changes{queueHeld}, []string{queues, "  Workload trainjob-llm Pending: its queue: LocalQueueStopped", noJobSet}},
		"waiting for an admission check": {changes{reserved, checked("budget", kueue.CheckStatePending, "")},
			[]string{queues, "  Workload trainjob-llm QuotaReserved: admission check budget (Pending)", noJobSet}},
		"pods of one Job in two states": {changes{admitted, withPods(3, runningPod), withPods(1, func(p *corev1.Pod) {
			p.Name, p.Spec.SchedulingGates = "llm-node-0-3", []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
		})}, []string{resumed, hasQuota, jobSet, job, "      Pods 3 pods Running",
			"      Pods 1 pod Gated: AdmissionGate: scheduling gate kueue-trainer.dev/admission"}},
		"a replicated job that depends on another": {changes{admitted, func(s *scene) {
			s.JobSet.Spec.ReplicatedJobs = append(s.JobSet.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{
				Name: "launcher", DependsOn: []jobsetapi.DependsOn{{Name: "node", Status: jobsetapi.DependencyReady}},
			})
		}}, []string{resumed, hasQuota, jobSet, podsToCome, "    Job llm-launcher Missing: node to be Ready"}},
		"a replicated job that has waited for another": {changes{admitted, dependent},
			[]string{resumed, hasQuota, jobSet, "    Job llm-node-0 Complete", "    Job llm-launcher Missing: JobSet to make it"}},
		"evicted": {evictedHere, []string{"TrainJob llm Resumed: kueue-trainer to stop it", evicts, jobSet, job, fourRun}},
		"stopped, with pods on their way out": {append(evictedHere, func(s *scene) { s.Job.Spec.Suspend = ptr.To(true) }),
			[]string{stops, evicts, jobSet, job, fourRun}},
		"a manifest has none": {scene: changes{func(s *scene) { s.Job.UID = "" }}},

		"of a job for other clusters that waits here": {changes{elsewhereBy, taken("h100", 4)}, []string{queues, lacksQuota}},
		"in a worker that is not known":               {changes{inWest}, []string{resumed, hasQuota, inWestHere}},
		"in a worker": {changes{inWest, there(t, "west", true, admitted, withPods(4, runningPod))},
			[]string{resumed, hasQuota, inWestHere, "    " + resumed, "    " + hasQuota, "    " + jobSet, "    " + job, "    " + fourRun}},
		"while workers are asked": {changes{asked, there(t, "west", false, taken("h100", 4))}, []string{
			queues, "  Workload trainjob-llm QuotaReserved", "  Cluster west Nominated: it to admit the job",
			"    TrainJob llm Missing: MultiKueue to copy it", "    " + lacksQuota, "  Cluster east Nominated: it to admit the job",
		}},
	}, func(f *Facts) (lines []string) {
		for _, l := range Chain(f) {
			line := fmt.Sprintf("%s%s %s %s: %s", strings.Repeat("  ", l.Depth), l.Kind, l.Name, l.State, l.WaitsFor)
			lines = append(lines, strings.TrimSuffix(line, ": "))
		}
		return lines
	})
}
