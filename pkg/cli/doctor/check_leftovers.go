// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/remainder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// settle is how long the garbage collector and Kueue may take for what they do anyway.
const settle = 10 * time.Second

// gates counts by namespace and kind what holds our gate.
type gates map[string]map[string]int64

func (g gates) hold(namespace, kind string) {
	if g[namespace] == nil {
		g[namespace] = map[string]int64{}
	}
	g[namespace][kind]++
}

// leftGates finds what kueue-trainer gated and, being uninstalled, does not free.
func leftGates(f *Facts) []Finding {
	if f.managerInstalled() || f.integrates() == external {
		return nil
	}
	held := f.gates()
	var findings []Finding
	for _, namespace := range slices.Sorted(maps.Keys(held)) {
		finding := gatesFinding(namespace, held[namespace])
		if f.generation() == trainjob.Trainer21 {
			finding.Advice = "hand-back is for a change to the in-tree integration, which Trainer 2.1 has none of; kueue-trainer frees them:"
			finding.Commands = []string{f.apply("default")}
		}
		findings = append(findings, finding)
	}
	return findings
}

func (f *Facts) gates() gates {
	held := gates{}
	for i := range f.TrainJobs {
		if job := &f.TrainJobs[i]; !job.Finished() && holdsGate(job) {
			held.hold(job.Namespace, "TrainJob")
		}
	}
	for i := range f.JobSets {
		if slices.ContainsFunc(f.JobSets[i].Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool { return gated(&rj.Template.Spec.Template.Spec) }) {
			held.hold(f.JobSets[i].Namespace, "JobSet")
		}
	}
	for i := range f.Jobs {
		if job := &f.Jobs[i]; gated(&job.Spec.Template.Spec) && job.Status.CompletionTime == nil {
			held.hold(job.Namespace, "Job")
		}
	}
	for i := range f.Pods {
		if pod := &f.Pods[i]; gated(&pod.Spec) {
			held.hold(pod.Namespace, "Pod")
		}
	}
	return held
}

func gated(pod *corev1.PodSpec) bool {
	return slices.Contains(pod.SchedulingGates, corev1.PodSchedulingGate{Name: patch.AdmissionGate})
}

func gatesFinding(namespace string, held map[string]int64) Finding {
	var counts []string
	for _, kind := range []string{"TrainJob", "JobSet", "Job", "Pod"} {
		if held[kind] > 0 {
			counts = append(counts, show.Count(held[kind], kind))
		}
	}
	return Finding{
		Severity: Error, Reason: "GatesLeft", Object: object("Namespace", "", namespace),
		Problem:  fmt.Sprintf("kueue-trainer is not installed, and its admission gate is still on %s.", strings.Join(counts, ", ")),
		Effect:   "Their pods are never scheduled, also when they are admitted.",
		Commands: []string{"kubectl trainjob hand-back -n " + namespace},
	}
}

// orphans finds Workloads of TrainJobs that do not exist any more, or that lost their
// owner, as in a restored backup.
func orphans(f *Facts) []Finding {
	there := sets.New[types.UID]()
	for i := range f.TrainJobs {
		there.Insert(f.TrainJobs[i].UID)
	}
	var findings []Finding
	for i := range f.Workloads {
		wl := &f.Workloads[i]
		problem := orphaned(wl, there)
		if problem == "" || wl.DeletionTimestamp.IsZero() && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) || f.settling(wl) ||
			heldForPods(wl) && metav1.GetControllerOfNoCopy(wl) != nil {
			continue
		}
		finding := Finding{
			Severity: Warning, Reason: "WorkloadOrphaned", Object: object("Workload", wl.Namespace, wl.Name),
			Problem: problem, Effect: "Nobody looks after it; it stays in its queue.",
			Commands: []string{fmt.Sprintf("kubectl -n %s delete workload %s --wait=false", wl.Namespace, wl.Name)},
		}
		if kueuelib.HasQuotaReservation(wl) {
			finding.Severity, finding.Effect = Error, "It holds quota that no pod uses, for ever."
		}
		if heldForPods(wl) {
			finding.Effect = keepsFromAdmission
		}
		finding.Commands = append(finding.Commands, unfinalize(wl)...)
		findings = append(findings, finding)
	}
	return findings
}

const keepsFromAdmission = "MultiKueue takes the TrainJob for admitted here. The command gives the quota away, though pods may still use it."

// unfinalize returns the command that takes the finalizers off a Workload, if it has some.
func unfinalize(wl *kueue.Workload) []string {
	if len(wl.Finalizers) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(`kubectl -n %s patch workload %s --type=merge -p '{"metadata":{"finalizers":null}}'`, wl.Namespace, wl.Name)}
}

// heldForPods reports whether kueue-trainer keeps a Workload that MultiKueue has deleted.
func heldForPods(wl *kueue.Workload) bool {
	return !wl.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(wl, remainder.Finalizer)
}

// keptQuota finds Workloads that keep the quota of pods which MultiKueue left, in a cluster where no
// kueue-trainer runs that would let it go.
func keptQuota(f *Facts) []Finding {
	if f.managerInstalled() && len(managerRunning(f)) == 0 {
		return nil
	}
	var findings []Finding
	for i := range f.Workloads {
		wl := &f.Workloads[i]
		finding := Finding{
			Severity: Error, Reason: "WorkloadOrphaned", Object: object("Workload", wl.Namespace, wl.Name),
			Commands: append([]string{fmt.Sprintf("kubectl -n %s delete workload %s --wait=false", wl.Namespace, wl.Name)}, unfinalize(wl)...),
		}
		switch owner := metav1.GetControllerOfNoCopy(wl); {
		case f.settling(wl):
			continue
		case heldForPods(wl) && owner != nil:
			finding.Problem = fmt.Sprintf("MultiKueue deleted the Workload of TrainJob %s, and kueue-trainer, which would let it go, is not running.", owner.Name)
			finding.Effect = keepsFromAdmission
		case len(remainder.Runs(wl)) > 0 && len(remainder.PodsOf(wl, f.running(wl))) == 0:
			finding.Problem = fmt.Sprintf("No pod is left of TrainJob %s, and kueue-trainer, which would delete its Workload, is not running.", wl.Labels[remainder.Label])
			finding.Effect = "It holds quota that no pod uses."
		default:
			continue
		}
		findings = append(findings, finding)
	}
	return findings
}

// running returns the pods in a Workload's namespace that have not ended.
func (f *Facts) running(wl *kueue.Workload) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(f.Pods), func(pod corev1.Pod) bool {
		return pod.Namespace != wl.Namespace || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
}

// orphaned tells what is missing of a TrainJob's Workload, or is empty. A Workload that
// MultiKueue makes on a worker cluster comes before its job.
func orphaned(wl *kueue.Workload, there sets.Set[types.UID]) string {
	owner := metav1.GetControllerOfNoCopy(wl)
	switch {
	case owner == nil && heldForPods(wl):
		return fmt.Sprintf("The Workload is deleted, and has no owner by which kueue-trainer would find it to take finalizer %s off.", remainder.Finalizer)
	case owner == nil:
		if _, multiKueue := wl.Labels[kueue.MultiKueueOriginLabel]; !multiKueue && len(wl.OwnerReferences) == 0 && strings.HasPrefix(wl.Name, "trainjob-") {
			return "The Workload has no owner, and its name is one of a TrainJob's."
		}
	case owner.Kind == trainjob.GVK.Kind && owner.APIVersion == trainjob.GVK.GroupVersion().String() && !there.Has(owner.UID):
		return fmt.Sprintf("The Workload's TrainJob %s does not exist any more.", owner.Name)
	}
	return ""
}

// settling reports whether a Workload was made, or is deleted, just now.
func (f *Facts) settling(wl *kueue.Workload) bool {
	last := wl.CreationTimestamp.Time
	if !wl.DeletionTimestamp.IsZero() {
		last = wl.DeletionTimestamp.Time
	}
	return f.Now.Sub(last) < settle
}

// countedTwice finds JobSets that Kueue queues although their TrainJob is queued.
func countedTwice(f *Facts) []Finding {
	ofTrainJobs := map[types.UID]string{}
	for i := range f.JobSets {
		owner := metav1.GetControllerOfNoCopy(&f.JobSets[i])
		if owner != nil && owner.Kind == trainjob.GVK.Kind {
			ofTrainJobs[f.JobSets[i].UID] = f.JobSets[i].Name
		}
	}
	var findings []Finding
	for i := range f.Workloads {
		wl := &f.Workloads[i]
		owner := metav1.GetControllerOfNoCopy(wl)
		if owner == nil || ofTrainJobs[owner.UID] == "" {
			continue
		}
		findings = append(findings, Finding{
			Severity: Error, Reason: "CountedTwice", Object: object("Workload", wl.Namespace, wl.Name),
			Problem:  fmt.Sprintf("JobSet %s has a Workload of its own, beside that of its TrainJob.", owner.Name),
			Effect:   "Its pods are counted twice, and wait for two admissions.",
			Advice:   "Let Kueue know first that TrainJobs are managed outside, if its configuration does not list them.",
			Commands: []string{fmt.Sprintf("kubectl -n %s delete workload %s", wl.Namespace, wl.Name)},
		})
	}
	return findings
}
