// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// leftOut counts the TrainJobs that are nobody's to create again.
type leftOut struct {
	finished int
	// copies are MultiKueue's, which makes them of the TrainJobs of another cluster.
	copies int
}

// export returns the TrainJobs of a cluster that have not finished as manifests, one for
// each. Their paths are namespace and name.
func export(ctx context.Context, c client.Client, namespace string) (files []manifest.File, left leftOut, err error) {
	// Unstructured, since no type has the fields of every generation.
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(trainjob.GVK.GroupVersion().WithKind(trainjob.GVK.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, left, fmt.Errorf("listing TrainJobs: %w", err)
	}
	for i := range list.Items {
		if _, isCopy := list.Items[i].GetLabels()[kueue.MultiKueueOriginLabel]; isCopy {
			left.copies++
			continue
		}
		file, err := exportOne(&list.Items[i])
		if err != nil {
			return nil, left, fmt.Errorf("trainjob %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
		}
		if file == nil {
			left.finished++
			continue
		}
		files = append(files, *file)
	}
	return files, left, nil
}

func exportOne(u *unstructured.Unstructured) (*manifest.File, error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var job trainjob.TrainJob
	if err := json.Unmarshal(data, &job); err != nil {
		return nil, err
	}
	if job.Finished() {
		return nil, nil
	}
	if err := withoutQueue(u, &job); err != nil {
		return nil, err
	}
	data, err = yaml.Marshal(asWritten(u))
	if err != nil {
		return nil, err
	}
	return manifest.Parse(u.GetNamespace()+"/"+u.GetName(), data), nil
}

// withoutQueue takes out what kueue-trainer put into the spec: its part of the patches, or who runs
// the TrainJob elsewhere, and with that the suspension. The in-tree integration puts an empty entry into TrainJobs in no queue
// as well: who suspended those is their user.
func withoutQueue(u *unstructured.Unstructured, job *trainjob.TrainJob) error {
	if ptr.Deref(job.Spec.ManagedBy, "") == kueue.MultiKueueControllerName {
		unstructured.RemoveNestedField(u.Object, "spec", "managedBy")
		unstructured.RemoveNestedField(u.Object, "spec", "suspend")
	}
	for _, generation := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22} {
		field := patch.Of(generation)
		if field.Has(&job.Spec) && (patch.Patched(field, &job.Spec) || u.GetLabels()[kueueconstants.QueueLabel] != "") {
			unstructured.RemoveNestedField(u.Object, "spec", "suspend")
		}
	}
	return errors.Join(leaveOurs(u, job.Spec.PodTemplateOverrides, "podTemplateOverrides"), leaveOurs(u, job.Spec.RuntimePatches, "runtimePatches"))
}

// leaveOurs takes our entries out of a list of the spec, and the list where nothing else is in it.
func leaveOurs(u *unstructured.Unstructured, entries []trainjob.RuntimePatch, name string) error {
	items, _, err := unstructured.NestedSlice(u.Object, "spec", name)
	var others []any
	for i, entry := range entries {
		if !entry.Ours() {
			others = append(others, items[i])
		}
	}
	if len(others) == 0 {
		unstructured.RemoveNestedField(u.Object, "spec", name)
		return err
	}
	return unstructured.SetNestedSlice(u.Object, others, "spec", name)
}

// lastApplied is where kubectl apply keeps what it was given.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// asWritten leaves out what is not for a manifest.
func asWritten(u *unstructured.Unstructured) map[string]any {
	metadata := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()}
	if labels := u.GetLabels(); len(labels) > 0 {
		metadata["labels"] = labels
	}
	annotations := u.GetAnnotations()
	delete(annotations, lastApplied)
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": metadata, "spec": u.Object["spec"]}
}
