// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// frees reports whether the entry of a TrainJob is to be replaced.
func (h *handBack) frees(job *trainjob.TrainJob) bool {
	return (h.placed || h.respelt[job.UID] != "") && job.Suspended() && h.field.Has(&job.Spec) || h.field.HoldsGate(&job.Spec)
}

// inQueue reports whether a TrainJob is in a queue, of this cluster or for another one.
func inQueue(job *trainjob.TrainJob) bool {
	return job.ManagedExternally() || job.Labels[kueueconstants.QueueLabel] != ""
}

// queued reports whether a TrainJob is in a queue, or was.
func (h *handBack) queued(job *trainjob.TrainJob) bool { return inQueue(job) || h.field.Has(&job.Spec) }

func (h *handBack) freeEntry(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	key := client.ObjectKeyFromObject(job)
	if !h.frees(job) {
		return h.freeLost(ctx, job)
	}
	if !job.Suspended() {
		return false, fmt.Errorf("TrainJob %s was resumed without quota, its pods hold the gate: suspend it and run this again: "+
			"kubectl -n %s patch trainjob %s --type merge -p '{\"spec\":{\"suspend\":true}}'", key, job.Namespace, job.Name)
	}
	if h.respelt[job.UID] != "" {
		if err := h.dropEntry(ctx, job); err != nil {
			return false, fmt.Errorf("removing the entry of TrainJob %s: %w", key, err)
		}
		return true, nil
	}
	placements, err := patch.AllFreed(h.field, &job.Spec)
	if err != nil {
		return false, fmt.Errorf("TrainJob %s: %w", key, err)
	}
	freed := job.DeepCopy()
	if !h.field.Set(&freed.Spec, placements) {
		return false, nil
	}
	err = h.setEntry(ctx, job, placements)
	if apierrors.IsInvalid(err) {
		return false, createAgain(job, "it cannot be changed any more, so the in-tree integration could not start it either: "+err.Error())
	}
	if err != nil {
		return false, fmt.Errorf("removing the gate from the entry of TrainJob %s: %w", key, err)
	}
	return true, nil
}

// freeLost makes the entry again, without gate and placement, of a TrainJob that waits and lost it to a setEntry that was
// stopped: Trainer takes nothing out of its JobSet for an entry that is not there.
func (h *handBack) freeLost(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	if !h.placed || !job.Suspended() || h.field.Has(&job.Spec) {
		return false, nil
	}
	js, err := JobSetOf(ctx, h.client, job)
	placements := podset.FreedIn(js)
	if err != nil || len(placements) == 0 {
		return false, err
	}
	if err := h.setEntry(ctx, job, placements); err != nil {
		return false, fmt.Errorf("removing the placement of TrainJob %s: %w", client.ObjectKeyFromObject(job), err)
	}
	return true, nil
}

// makeEntry adds the manager's entry, empty, to a TrainJob in a queue that has none: one that waits for another cluster
// was created without, and one may have lost it to a setEntry that was stopped. The in-tree integration starts no job
// that has none (RunWithPodSetsInfo).
func (h *handBack) makeEntry(ctx context.Context, job *trainjob.TrainJob, freed bool) (bool, error) {
	if h.placed || h.respelt[job.UID] != "" || h.served < trainjob.Trainer22 || !freed && !inQueue(job) || !job.Suspended() || h.field.Has(&job.Spec) {
		return false, nil
	}
	if err := h.setEntry(ctx, job, nil); err != nil {
		return false, fmt.Errorf("making the in-tree integration's entry of TrainJob %s: %w", client.ObjectKeyFromObject(job), err)
	}
	return true, nil
}

// setEntry replaces the entry, in two writes: Trainer's webhook leaves an entry alone that is new and has a time. Whoever
// is stopped between the writes has a TrainJob without an entry, which waits, and makes it by the same command.
func (h *handBack) setEntry(ctx context.Context, job *trainjob.TrainJob, placements []patch.Placement) error {
	if h.served >= trainjob.Trainer22 && h.field.Has(&job.Spec) {
		if err := h.dropEntry(ctx, job); err != nil {
			return err
		}
	}
	return h.write(ctx, job, func(spec *trainjob.Spec) error {
		h.field.Set(spec, placements)
		return patch.Stamp(spec.RuntimePatches, metav1.Now())
	})
}

func (h *handBack) dropEntry(ctx context.Context, job *trainjob.TrainJob) error {
	return h.write(ctx, job, func(spec *trainjob.Spec) error {
		h.field.Drop(spec)
		return nil
	})
}

func (h *handBack) write(ctx context.Context, job *trainjob.TrainJob, change func(*trainjob.Spec) error) error {
	return kueuelib.Patch(ctx, h.client, job, func() (bool, error) { return true, change(&job.Spec) })
}

func createAgain(job *trainjob.TrainJob, why string) error {
	return fmt.Errorf("TrainJob %s/%s has to be created again (kubectl -n %s get trainjob %s -o yaml | kubectl replace --force -f -): %s",
		job.Namespace, job.Name, job.Namespace, job.Name, why)
}

// unwritable returns an error for a TrainJob in a queue, or that was freed, which the in-tree integration can neither start
// nor stop.
func (h *handBack) unwritable(job *trainjob.TrainJob, freed bool) error {
	field := h.respelt[job.UID]
	if field == "" || !freed && !h.queued(job) {
		return nil
	}
	why := field + " is not spelt as Kubernetes writes it, such as nvidia.com/gpu: 8 for \"8\", or readOnly: false or value: \"\" (take such out), " +
		"and cannot change: the in-tree integration writes a TrainJob whole, and the API server refuses that"
	if job.Suspended() {
		return createAgain(job, why+", so it would be admitted and never start")
	}
	return fmt.Errorf("TrainJob %s/%s runs, and the in-tree integration could not stop it, for a preemption say: let it end, or delete it "+
		"and create it again: %s", job.Namespace, job.Name, why)
}

// entryless reports TrainJobs that run without an entry of the in-tree integration: when one is evicted, that suspends it
// and keeps its quota because there is no entry to restore (its Stop), and Trainer accepts no new one while a TrainJob runs.
// Those that run in another cluster never have one: they are printed to out, and are no failure.
func (h *handBack) entryless(out io.Writer) error {
	if h.served < trainjob.Trainer22 {
		return nil
	}
	var failures error
	for _, job := range h.jobs {
		if !inQueue(job) || job.Suspended() || h.field.Has(&job.Spec) {
			continue
		}
		text := fmt.Sprintf("TrainJob %s/%s runs without an entry of the in-tree integration, which would keep its quota when it is evicted: "+
			"let it end, or run this again as soon as it is suspended", job.Namespace, job.Name)
		if job.ManagedExternally() {
			fmt.Fprintln(out, text)
			continue
		}
		failures = errors.Join(failures, errors.New(text))
	}
	return failures
}

// guarded are the fields of an entry's pods that nobody may change, but leave out.
var guarded = []string{"serviceAccountName", "volumes", "initContainers", "containers", "imagePullSecrets", "securityContext"}

// respeltField is where a TrainJob has, or empty, what the in-tree integration would write in another spelling of what is
// immutable since Trainer 2.2, such as nvidia.com/gpu: 8. It updates a TrainJob whole when it starts or stops it
// (RunWithPodSetsInfo and Stop), and the API server takes that for a change.
func respeltField(job map[string]any) string {
	spec, _ := job["spec"].(map[string]any)
	switch {
	case respells(spec["trainer"], &trainer.Trainer{}):
		return "spec.trainer"
	case respells(spec["initializer"], &trainer.Initializer{}):
		return "spec.initializer"
	}
	for _, entry := range itemsOf(spec, "runtimePatches") {
		for _, rj := range itemsOf(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") {
			pods, _, _ := unstructured.NestedMap(rj, "template", "spec", "template", "spec")
			maps.DeleteFunc(pods, func(name string, value any) bool {
				list, isList := value.([]any)
				return !slices.Contains(guarded, name) || isList && len(list) == 0 // An empty one is left out, which is no change.
			})
			if respells(pods, &trainer.PodSpecPatch{}) {
				return fmt.Sprintf("the entry of %v in spec.runtimePatches", entry["manager"])
			}
		}
	}
	return ""
}

func itemsOf(object map[string]any, path ...string) (items []map[string]any) {
	list, _, _ := unstructured.NestedSlice(object, path...)
	for _, item := range list {
		object, _ := item.(map[string]any)
		items = append(items, object)
	}
	return items
}

// respells reports whether an object looks otherwise when it was decoded as typed and encoded again.
func respells(stored, typed any) bool {
	object, is := stored.(map[string]any)
	if !is {
		return false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		return true
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return err != nil || len(object)+len(written) > 0 && !reflect.DeepEqual(object, written)
}
