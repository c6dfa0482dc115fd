// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// view is what there is of a TrainJob in the cluster.
type view struct {
	// job is nil when it is gone.
	job *trainjob.TrainJob
	// workload and jobSet are nil when there is none yet.
	workload *kueue.Workload
	jobSet   *jobsetapi.JobSet
	pods     []corev1.Pod
}

// step is one on the way to running.
type step struct {
	name string
	done bool
	// detail says more of what was done or, of the first step that is not, what it waits for.
	detail string
	// waits is for a detail that says what holds the step up.
	waits bool
}

// progress is how far a TrainJob has come.
type progress struct {
	steps []step
	// failure is why it will not run; empty as long as it may.
	failure string
}

// running reports whether there is nothing more to wait for.
func (p progress) running() bool { return p.steps[len(p.steps)-1].done }

// progressOf tells how far a TrainJob has come.
func progressOf(v view) progress {
	if v.job == nil {
		return progress{steps: []step{{name: "submitted", done: true}, {name: "pods running"}}, failure: "it was deleted"}
	}
	p := progress{steps: []step{{name: "submitted", done: true, detail: "trainjob " + v.job.Namespace + "/" + v.job.Name}}, failure: failure(v)}
	// One that was started without a Workload is in no queue, whatever it names: Kueue does not manage its namespace.
	if queue := v.job.Labels[kueueconstants.QueueLabel]; queue != "" && (v.workload != nil || v.job.Suspended()) {
		p.steps = append(p.steps, queueSteps(v.workload, queue)...)
	}
	if cluster.ForMultiKueue(v.job) {
		p.steps = append(p.steps, workerStep(v))
	} else {
		p.steps = append(p.steps, podSteps(v)...)
	}
	return p
}

// failure says why a TrainJob will not run.
func failure(v view) string {
	if failed := apimeta.FindStatusCondition(v.job.Status.Conditions, trainer.TrainJobFailed); failed != nil && failed.Status == metav1.ConditionTrue {
		return "it failed: " + failed.Message
	}
	if v.workload == nil {
		return ""
	}
	if !ptr.Deref(v.workload.Spec.Active, true) {
		return "its Workload was deactivated" + why(v.workload, kueue.WorkloadEvicted)
	}
	for _, check := range v.workload.Status.AdmissionChecks {
		if check.State == kueue.CheckStateRejected {
			return fmt.Sprintf("admission check %s rejected it: %s", check.Name, check.Message)
		}
	}
	return ""
}

// why returns a condition's message, whatever its status.
func why(wl *kueue.Workload, condition string) string {
	if found := apimeta.FindStatusCondition(wl.Status.Conditions, condition); found != nil && found.Message != "" {
		return ": " + found.Message
	}
	return ""
}

func queueSteps(wl *kueue.Workload, queue string) []step {
	steps := []step{
		{name: "queued", done: wl != nil, detail: "waits for its Workload"},
		{name: "quota reserved"},
		{name: "admitted"},
	}
	if wl == nil {
		return steps
	}
	steps[0].detail = "LocalQueue " + queue
	if steps[1].done = apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved); !steps[1].done || wl.Status.Admission == nil {
		steps[1].detail, steps[1].waits = waitsFor(wl), true
		return steps
	}
	steps[1].detail = "ClusterQueue " + string(wl.Status.Admission.ClusterQueue)
	if steps[2].done = apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted); steps[2].done {
		steps[2].detail = "flavor " + strings.Join(flavors(wl.Status.Admission), ", ")
		return steps
	}
	for _, check := range wl.Status.AdmissionChecks {
		if check.State != kueue.CheckStateReady {
			steps[2].detail, steps[2].waits = fmt.Sprintf("waits for admission check %s: %s", check.Name, check.Message), true
			break
		}
	}
	return steps
}

// waitsFor says why there is no quota: what it was evicted for counts as long as Kueue has
// not looked at it again.
func waitsFor(wl *kueue.Workload) string {
	if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) {
		return "evicted" + why(wl, kueue.WorkloadEvicted)
	}
	return strings.TrimPrefix(why(wl, kueue.WorkloadQuotaReserved), ": ")
}

// flavors names those of an admission, sorted.
func flavors(admission *kueue.Admission) []string {
	found := map[string]bool{}
	for _, assignment := range admission.PodSetAssignments {
		for _, flavor := range assignment.Flavors {
			found[string(flavor)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// workerStep is for a job that MultiKueue takes to another cluster: its pods are there. Kueue names
// the worker a moment before it admits the Workload.
func workerStep(v view) step {
	s := step{name: "in a worker", done: v.job.Finished()}
	if worker := cluster.Assigned(v.workload); worker != "" && apimeta.IsStatusConditionTrue(v.workload.Status.Conditions, kueue.WorkloadAdmitted) {
		s.done, s.detail = true, "cluster "+worker
	}
	return s
}

func podSteps(v view) []step {
	created, running := 0, 0
	for i := range v.pods {
		pod := &v.pods[i]
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		created++
		if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded {
			running++
		}
	}
	wanted := podsOf(v.jobSet)
	complete := apimeta.IsStatusConditionTrue(v.job.Status.Conditions, trainer.TrainJobComplete)
	steps := []step{
		{name: "pods created", done: complete || wanted > 0 && created >= wanted, detail: fmt.Sprintf("%d of %s", created, show.Count(int64(wanted), "pod"))},
		{name: "pods running", done: complete || wanted > 0 && running >= wanted, detail: fmt.Sprintf("%d of %s", running, show.Count(int64(wanted), "pod"))},
	}
	switch {
	case complete:
		steps[0].detail, steps[1].detail = "", "it is complete"
	case wanted == 0:
		steps[0].detail, steps[1].detail = "", ""
	}
	return steps
}

// podsOf is how many pods a JobSet is for.
func podsOf(js *jobsetapi.JobSet) int {
	if js == nil {
		return 0
	}
	pods := 0
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		pods += int(rj.Replicas * podset.PodsPerReplica(rj))
	}
	return pods
}
