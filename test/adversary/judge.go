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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
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
	// startTimeout is the manager's setting: of what makes no pods, and does not say why, quota goes after five
	// times that.
	startTimeout = 8 * time.Second
	// holding is how long quota may be held without pods.
	holding = time.Minute
	// yielding is the longest grace period of a walk's pods, and 30 s.
	yielding = 46 * time.Second
	// loop is how often the manager may log the same error about a walk.
	loop = 10
)

// judge says what is wrong after a walk, when whatever the tenant has set off had its time.
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
	add(touched, w.untouched(ctx))
	add(repeats, w.repeats())
	w.calm()
	add(notFreed, w.leaves(ctx))
	if err := within(ctx, 30*time.Second, w.ledger.CaughtUp); err != nil {
		return found, err
	}
	result, err := w.ledger.Check(ledger.Expectation{})
	for _, v := range result.Violations {
		found = append(found, finding{string(v.Rule), v.String()})
	}
	return found, errors.Join(err, ctx.Err())
}

// patient returns a limit for a cluster that is as busy as this one: what starts a job makes some ten requests, one
// after another, and what ends one and starts another not more than ten times as many.
func (w *walk) patient(limit time.Duration) time.Duration { return max(limit, limit/2+10*w.unhindered) }

// dropPlanted deletes the Workloads that are no TrainJob's. Whoever may make Workloads holds quota with one of
// nobody's for as long as he likes, by Kueue's rules, see docs/dev/invariants.md.
func (w *walk) dropPlanted(ctx context.Context) error {
	var workloads kueue.WorkloadList
	if err := w.List(ctx, &workloads, client.InNamespace(w.Namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		if owner := metav1.GetControllerOfNoCopy(wl); owner != nil && owner.Kind == "TrainJob" {
			continue
		}
		before := wl.DeepCopy()
		wl.Finalizers = nil
		errs = append(errs, client.IgnoreNotFound(w.Patch(ctx, wl, client.MergeFrom(before))), client.IgnoreNotFound(w.Delete(ctx, wl)))
	}
	return errors.Join(errs...)
}

// within waits until something holds, and returns why it does not.
func within(ctx context.Context, limit time.Duration, holds func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		// A request that is under way at the end of the time still says what is wrong.
		last = holds(ctx)
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	return fmt.Errorf("after %s: %w", limit, last)
}

// noneHeld reports, by an error, quota of the tenant's jobs without a pod that could run on it.
func (w *walk) noneHeld(ctx context.Context) error {
	var workloads kueue.WorkloadList
	var pods corev1.PodList
	if err := errors.Join(w.List(ctx, &workloads, client.InNamespace(w.Namespace)), w.List(ctx, &pods, client.InNamespace(w.Namespace))); err != nil {
		return err
	}
	for _, wl := range workloads.Items {
		owner := metav1.GetControllerOfNoCopy(&wl)
		if owner == nil || owner.Kind != "TrainJob" || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) ||
			apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			continue
		}
		could := slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Labels[jobsetapi.JobSetNameKey] == owner.Name && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
		})
		// Beyond the walk's own limits no pods are made.
		if !could && len(pods.Items) < 40 {
			return fmt.Errorf("Workload %s of TrainJob %s has no pod", wl.Name, owner.Name)
		}
	}
	return nil
}

// yields has the neighbour start a job that is more important than all, and reports, by an error, that
// nobody makes room.
func (w *walk) yields(ctx context.Context) error {
	probe := kit.TrainJob(w.neighbours, "probe").Queue("queue").Priority(w.Name("highest")).GPUs(quota).Obj()
	if err := w.Create(ctx, probe); err != nil {
		return err
	}
	err := within(ctx, w.patient(yielding), func(ctx context.Context) error { return w.starts(ctx, "probe") })
	return errors.Join(err, w.Delete(ctx, probe))
}

// starts reports, by an error, that a job of the neighbour's has no pods that may run.
func (w *walk) starts(ctx context.Context, job string) error {
	var pods corev1.PodList
	if err := w.List(ctx, &pods, client.InNamespace(w.neighbours), client.MatchingLabels{jobsetapi.JobSetNameKey: job}); err != nil {
		return err
	}
	if !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return len(pod.Spec.SchedulingGates) == 0 }) {
		return fmt.Errorf("TrainJob %s of the neighbour has no pod that may run; %s", job, w.holders(ctx))
	}
	return nil
}

// holders says who holds quota, for those who ask why somebody waits.
func (w *walk) holders(ctx context.Context) string {
	var workloads kueue.WorkloadList
	if err := w.List(ctx, &workloads); err != nil {
		return err.Error()
	}
	var out []string
	for _, wl := range workloads.Items {
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
	return "quota is with " + strings.Join(out, ", ")
}

// untouched reports, by an error, that the bystander does not run as it did.
func (w *walk) untouched(ctx context.Context) error {
	var pods corev1.PodList
	if err := w.List(ctx, &pods, client.InNamespace(w.neighbours), client.MatchingLabels{jobsetapi.JobSetNameKey: "bystander"}); err != nil {
		return err
	}
	if len(pods.Items) != 1 || len(pods.Items[0].Spec.SchedulingGates) > 0 || pods.Items[0].DeletionTimestamp != nil {
		return fmt.Errorf("the bystander has %d pods", len(pods.Items))
	}
	var job trainer.TrainJob
	if err := w.Get(ctx, client.ObjectKey{Namespace: w.neighbours, Name: "bystander"}, &job); err != nil {
		return err
	}
	// It is created, and starts once: the manager's entry and the resume are writes of their own.
	if job.Generation > 3 {
		return fmt.Errorf("the bystander has generation %d", job.Generation)
	}
	return nil
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
	toggled := kit.TrainJob(w.neighbours, "toggled").Obj()
	if err := client.IgnoreNotFound(w.Delete(ctx, toggled)); err != nil {
		return err
	}
	waits := kit.TrainJob(w.neighbours, "waits").Queue("queue").GPUs(quota).Obj()
	if err := errors.Join(w.Create(ctx, waits), w.Delete(ctx, kit.Namespace(w.Namespace))); err != nil {
		return err
	}
	return within(ctx, w.patient(holding), func(ctx context.Context) error {
		// Trainer refuses even to let go of what has no runtime any more; that holds no quota by itself.
		stripped := w.strip(ctx)
		if !strings.Contains(w.holders(ctx), "/") {
			for _, gpus := range []string{"9", quota} {
				w.SetQuota(ctx, w.Name("gpus"), gpus)
			}
		}
		if err := w.starts(ctx, "waits"); err != nil {
			return errors.Join(err, stripped)
		}
		return nil
	})
}

// strip takes the tenant's own finalizers away, as an admin who wants the namespace gone.
func (w *walk) strip(ctx context.Context) error {
	for _, obj := range w.seen() {
		if !slices.ContainsFunc(obj.GetFinalizers(), func(f string) bool { return slices.Contains([]string{"example.com/mine", "orphan"}, f) }) {
			continue
		}
		obj = obj.DeepCopy()
		obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == "example.com/mine" || f == "orphan" }))
		if err := w.Update(ctx, obj); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}
