// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadfinish "sigs.k8s.io/kueue/pkg/workload/finish"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// finding is something that a tenant brought about and that must not be.
type finding struct {
	// rule is what was broken, the same for the same hole.
	rule string
	what string
}

func (f finding) String() string { return f.rule + ": " + f.what }

// The rules beside the ledger's.
const (
	heldByNothing = "quota is held by nothing that can run"
	doesNotYield  = "a job does not yield to a preemption"
	notFreed      = "a namespace is deleted and its quota stays"
	touched       = "a job of another namespace is touched"
	repeats       = "the manager repeats an error"
)

const (
	// startTimeout is the manager's setting: of what makes no pods and does not say why, quota goes after five times that.
	startTimeout = 8 * time.Second
	// holding is how long quota may be held without pods.
	holding = time.Minute
	// yielding is the longest grace period of a walk's pods, and 30 s.
	yielding = 46 * time.Second
	// loop is how often the manager may log the same error about a walk.
	loop = 10
)

func (w *walk) judge(ctx context.Context) ([]finding, error) {
	var found []finding
	add := func(rule string, err error) {
		if err != nil {
			found = append(found, finding{rule, err.Error()})
		}
	}
	if err := within(ctx, w.patient(holding), w.dropPlanted); err != nil {
		return nil, err
	}
	add(heldByNothing, within(ctx, w.patient(holding), w.noneHeld))
	add(doesNotYield, w.yields(ctx))
	add(touched, attempt.To(func() { w.untouched(ctx, attempt.Gomega()) }))
	add(repeats, w.repeats())
	w.calm()
	add(notFreed, w.leaves(ctx))
	caughtUp := func(ctx context.Context, g gomega.Gomega) { g.Expect(w.ledger.CaughtUp(ctx)).To(gomega.Succeed()) }
	if err := within(ctx, 30*time.Second, caughtUp); err != nil {
		return found, err
	}
	result, err := w.ledger.Check()
	for _, v := range result.Violations {
		found = append(found, finding{string(v.Rule), v.String()})
	}
	return found, errors.Join(err, ctx.Err())
}

// patient returns a limit for a cluster that is as busy as this one: what starts a job makes some ten requests, one
// after another, and what ends one and starts another not more than ten times as many.
func (w *walk) patient(limit time.Duration) time.Duration { return max(limit, limit/2+10*w.unhindered) }

// within waits until something holds, and returns why it does not.
func within(ctx context.Context, limit time.Duration, holds func(context.Context, gomega.Gomega)) error {
	return attempt.To(func() {
		// A request that is under way at the end of the time still says what is wrong.
		attempt.Gomega().Eventually(func(g gomega.Gomega) { holds(ctx, g) }).WithTimeout(limit).WithPolling(200 * time.Millisecond).Should(gomega.Succeed())
	})
}

func trainJobOf(wl *kueue.Workload) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(wl); owner != nil && owner.Kind == "TrainJob" {
		return owner
	}
	return nil
}

// dropPlanted deletes the Workloads that are no TrainJob's. Whoever may make Workloads holds quota with one of
// nobody's for as long as he likes, by Kueue's rules, see docs/dev/invariants.md.
func (w *walk) dropPlanted(ctx context.Context, g gomega.Gomega) {
	workloads := world.All(ctx, g, w, &kueue.WorkloadList{}, client.InNamespace(w.Namespace))
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if trainJobOf(wl) == nil {
			before := wl.DeepCopy()
			wl.Finalizers = nil
			g.Expect(client.IgnoreNotFound(w.Patch(ctx, wl, client.MergeFrom(before)))).To(gomega.Succeed())
			g.Expect(client.IgnoreNotFound(w.Delete(ctx, wl))).To(gomega.Succeed())
		}
	}
}

// noneHeld expects no quota of the tenant's jobs without a pod that could run on it.
func (w *walk) noneHeld(ctx context.Context, g gomega.Gomega) {
	pods := world.All(ctx, g, w, &corev1.PodList{}, client.InNamespace(w.Namespace)).Items
	if len(pods) >= mostPods {
		return
	}
	jobs := world.All(ctx, g, w, &batchv1.JobList{}, client.InNamespace(w.Namespace)).Items
	jobSets := world.All(ctx, g, w, &jobsetapi.JobSetList{}, client.InNamespace(w.Namespace)).Items
	for _, wl := range world.All(ctx, g, w, &kueue.WorkloadList{}, client.InNamespace(w.Namespace)).Items {
		job := trainJobOf(&wl)
		if job == nil || !workload.HasQuotaReservation(&wl) || workloadfinish.IsFinished(&wl) {
			continue
		}
		could := slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return couldRun(&pod, job, jobs, jobSets) })
		g.Expect(could).To(gomega.BeTrue(), "Workload %s of TrainJob %s has no pod that could run", wl.Name, job.Name)
	}
}

// couldRun reports whether a pod is a TrainJob's, and runs or may be bound to a node. Where its Job or its JobSet is gone
// already, the label of Kueue's that nobody may copy says that it is one's.
func couldRun(pod *corev1.Pod, job *metav1.OwnerReference, jobs []batchv1.Job, jobSets []jobsetapi.JobSet) bool {
	child := state.ControllerOfKind(pod, state.JobKind)
	if child == nil || pod.Labels[jobsetapi.JobSetNameKey] != job.Name || patch.HasAdmissionGate(pod.Spec.SchedulingGates) ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	placed := pod.Labels[kueueconstants.PodSetLabel] != ""
	at := slices.IndexFunc(jobs, func(other batchv1.Job) bool { return other.UID == child.UID })
	if at < 0 {
		return placed
	}
	owner := state.ControllerOfKind(&jobs[at], state.JobSetKind)
	if owner == nil {
		return false
	}
	if at = slices.IndexFunc(jobSets, func(other jobsetapi.JobSet) bool { return other.UID == owner.UID }); at < 0 {
		return placed
	}
	owner = state.ControllerOfKind(&jobSets[at], trainjob.GVK)
	return owner != nil && owner.UID == job.UID
}

// yields has the neighbour start a job that is more important than all, and reports, by an error, that
// nobody makes room. The neighbour's other job goes: it could come first, and then there are two stops to wait for.
func (w *walk) yields(ctx context.Context) error {
	probe := w.neighbour.Job("probe").Priority(w.Name("highest")).GPUs(quota).Obj()
	other := client.IgnoreNotFound(w.Delete(ctx, w.neighbour.Job("toggled").Obj()))
	if err := errors.Join(other, w.Create(ctx, probe)); err != nil {
		return err
	}
	return errors.Join(within(ctx, w.patient(yielding), w.starts("probe")), w.Delete(ctx, probe))
}

func (w *walk) podsOf(ctx context.Context, g gomega.Gomega, job string) []corev1.Pod {
	return world.All(ctx, g, w, &corev1.PodList{}, client.InNamespace(w.neighbour.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job}).Items
}

// starts expects that a job of the neighbour's has a pod that may run.
func (w *walk) starts(job string) func(context.Context, gomega.Gomega) {
	return func(ctx context.Context, g gomega.Gomega) {
		mayRun := gomega.HaveField("Spec.SchedulingGates", gomega.BeEmpty())
		g.Expect(w.podsOf(ctx, g, job)).To(gomega.ContainElement(mayRun), func() string {
			return fmt.Sprintf("TrainJob %s of the neighbour has no pod that may run; quota is with %s", job, strings.Join(w.holders(ctx, g), ", "))
		})
	}
}

// holders says who holds quota, for those who ask why somebody waits.
func (w *walk) holders(ctx context.Context, g gomega.Gomega) (out []string) {
	for _, wl := range world.All(ctx, g, w, &kueue.WorkloadList{}).Items {
		if wl.Status.Admission == nil || wl.Status.Admission.ClusterQueue != kueue.ClusterQueueReference(w.Name("gpus")) {
			continue
		}
		var holds []string
		for _, c := range wl.Status.Conditions {
			if c.Status == metav1.ConditionTrue {
				holds = append(holds, c.Type)
			}
		}
		out = append(out, fmt.Sprintf("%s/%s %v", wl.Namespace, wl.Name, holds))
	}
	return out
}

// untouched expects that the bystander runs as it did: created, given the manager's entry, and resumed once.
func (w *walk) untouched(ctx context.Context, g gomega.Gomega) {
	g.Expect(w.podsOf(ctx, g, "bystander")).To(gomega.ConsistOf(gomega.And(
		gomega.HaveField("Spec.SchedulingGates", gomega.BeEmpty()), gomega.HaveField("DeletionTimestamp", gomega.BeNil()))), "pods of the bystander")
	job := world.Found(ctx, g, w, &trainer.TrainJob{}, client.ObjectKey{Namespace: w.neighbour.Namespace, Name: "bystander"})
	g.Expect(job.Generation).To(gomega.BeNumerically("<=", 3), "generation of the bystander")
}

// repeats reports, by an error, what the manager has logged again and again as an error about the walk.
func (w *walk) repeats() error {
	lines, err := w.Cluster.Errors(w.Cluster.Manager())
	if err != nil {
		return err
	}
	times := map[string]int{}
	for _, line := range lines {
		var entry struct{ Msg, Error string }
		if !strings.Contains(line, w.Namespace+`"`) || json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		said := entry.Msg + ": " + entry.Error
		if times[said]++; times[said] >= loop {
			return fmt.Errorf("%d times: %s", times[said], line)
		}
	}
	return nil
}

// leaves deletes the tenant's namespace, and reports, by an error, that its quota stays. What waits for that
// quota is woken: Kueue does not, for it looks for the LocalQueue that is gone.
func (w *walk) leaves(ctx context.Context) error {
	waits := w.neighbour.Job("waits").GPUs(quota).Obj()
	if err := errors.Join(w.Create(ctx, waits), w.Delete(ctx, kit.Namespace(w.Namespace))); err != nil {
		return err
	}
	return within(ctx, w.patient(holding), func(ctx context.Context, g gomega.Gomega) {
		// Trainer refuses even to let go of what has no runtime any more; that holds no quota by itself.
		stripped := w.strip(ctx)
		if len(w.holders(ctx, g)) == 0 {
			for _, gpus := range []string{"9", quota} {
				w.SetQuota(ctx, w.Name("gpus"), gpus)
			}
		}
		if err := attempt.To(func() { w.starts("waits")(ctx, attempt.Gomega()) }); err != nil {
			g.Expect(errors.Join(err, stripped)).To(gomega.Succeed())
		}
	})
}

// strip takes the tenant's own finalizers away, as an admin who wants the namespace gone.
func (w *walk) strip(ctx context.Context) error {
	own := func(finalizer string) bool { return finalizer == "example.com/mine" || finalizer == "orphan" }
	for _, obj := range w.seen() {
		if !slices.ContainsFunc(obj.GetFinalizers(), own) {
			continue
		}
		obj = obj.DeepCopy()
		obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), own))
		if err := w.Update(ctx, obj); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
