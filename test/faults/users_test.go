// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// userEdits are what a user does to TrainJob low at the wrong time, and what that rightly changes.
var userEdits = []plan{
	{
		name: "an entry with unknown fields and zeros", action: editFirst(addEntry),
		// Its containers change, so it gets another Workload or another version of it.
		slack: 5, differs: []string{"low/trainjob/patches", "low/workload/"},
	},
	{name: "labels", action: editFirst(set("vision", "metadata", "labels", "example.com/team")), differs: []string{"low/trainjob/labels"}},
	{
		name: "a resume", action: editFirst(set(false, "spec", "suspend")), slack: 3,
		// Its pod can be placed and bound before the suspension that answers it arrives.
		restarts: 1,
	},
	{
		name: "another job of the same name", action: editFirst(recreate),
		// Everything is written once more, for another Workload that was never evicted.
		slack: 5, differs: []string{"low/workload/conditions"},
	},
}

// The entries that are added say things that Trainer's types do not hold, or hold only
// as absent.
const (
	addedFuture = `"future": {"zero": 0, "empty": "", "no": false, "list": []}`
	addedSpec   = `{
    "volumes": [{"name": "scratch", "emptyDir": {}}],
    "containers": [{"name": "node", "env": [{"name": "EMPTY", "value": ""}],
      "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "readOnly": false}]}]}`
)

// added are the entries by the field that takes them.
var added = map[string]string{
	"runtimePatches": `{"manager": "example.com/added", "time": "2026-01-01T00:00:00Z", ` + addedFuture + `,
  "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": ` + addedSpec + `}}}}]}}}}`,
	"podTemplateOverrides": `{"targetJobs": [{"name": "node"}], ` + addedFuture + `, "spec": ` + addedSpec + `}`,
}

// addEntry adds a patch entry, which Trainer refuses while the job runs.
func addEntry(ctx context.Context, r *run) error {
	err := r.edit(ctx, func(job *unstructured.Unstructured) error {
		field, entries := history.Entries(job)
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(added[field]), &entry); err != nil {
			return err
		}
		return unstructured.SetNestedSlice(job.Object, append(entries, entry), "spec", field)
	})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// set sets a field of TrainJob low.
func set(value any, fields ...string) hook {
	return func(ctx context.Context, r *run) error {
		return r.edit(ctx, func(job *unstructured.Unstructured) error {
			return unstructured.SetNestedField(job.Object, value, fields...)
		})
	}
}

func setQueue(queue string) hook { return set(queue, "metadata", "labels", kit.QueueLabel) }

// edit changes TrainJob low as its user, without Go types that could lose a field.
func (r *run) edit(ctx context.Context, change func(*unstructured.Unstructured) error) error {
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(trainer.GroupVersion.WithKind("TrainJob"))
	job.SetNamespace(r.Namespace)
	job.SetName(low)
	var wrong error
	if err := world.TryChange(ctx, r, job, func() { wrong = change(job) }); err != nil || wrong != nil {
		return errors.Join(err, wrong)
	}
	rv, err := strconv.ParseUint(job.GetResourceVersion(), 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.userWrites[rv] = true
	return err
}

// recreate deletes TrainJob low and creates another one as soon as nothing of the first
// is left. Trainer calls the new one complete by the JobSet of the old one otherwise,
// which is not what this is about.
func recreate(ctx context.Context, r *run) error {
	if err := r.Delete(ctx, r.Job(low).Obj()); err != nil {
		return err
	}
	left := []client.Object{r.jobSet(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: low + "-runtime-snapshot"}}}
	for _, obj := range left {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(r.Get(ctx, client.ObjectKeyFromObject(obj), obj)), nil
		})
		if err != nil {
			return fmt.Errorf("%T %s is still there: %w", obj, obj.GetName(), err)
		}
	}
	return r.Create(ctx, r.job(low, low, training).Obj())
}

// activate sets spec.active of low's Workload.
func activate(active bool) hook {
	return func(ctx context.Context, r *run) error {
		r.Activate(ctx, low, active)
		return nil
	}
}

// changeFlavor sets another node label of flavor B, which the GPU nodes of the local cluster carry,
// or with null takes it away again.
func changeFlavor(count string) hook {
	return func(ctx context.Context, r *run) error {
		return r.merge(ctx, kit.Flavor(r.Name("b"), nil), fmt.Sprintf(`{"spec":{"nodeLabels":{"nvidia.com/gpu.count":%s}}}`, count))
	}
}
