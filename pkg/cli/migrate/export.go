// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
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
		if !field.Has(&job.Spec) {
			continue
		}
		jobs, err := field.Jobs(&job.Spec)
		if err != nil || len(jobs) > 0 || u.GetLabels()[kueueconstants.QueueLabel] != "" {
			unstructured.RemoveNestedField(u.Object, "spec", "suspend")
		}
		field.Drop(&job.Spec)
	}
	return setLists(u, map[string]any{
		"podTemplateOverrides": job.Spec.PodTemplateOverrides, "runtimePatches": job.Spec.RuntimePatches,
	})
}

func setLists(u *unstructured.Unstructured, lists map[string]any) error {
	for name, list := range lists {
		data, err := json.Marshal(list)
		if err != nil {
			return err
		}
		var items []any
		if err := utiljson.Unmarshal(data, &items); err != nil {
			return err
		}
		unstructured.RemoveNestedField(u.Object, "spec", name)
		if len(items) == 0 {
			continue
		}
		if err := unstructured.SetNestedSlice(u.Object, items, "spec", name); err != nil {
			return err
		}
	}
	return nil
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
