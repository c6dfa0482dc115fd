// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// export returns the TrainJobs of a cluster that have not finished as manifests, one for each, whose paths are namespace and
// name, and tells which are left out. Those that MultiKueue has made it makes again of the TrainJobs of another cluster.
func export(ctx context.Context, c client.Client, namespace string) (files []manifest.File, left []string, err error) {
	// Unstructured, since no type has the fields of every generation.
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(trainjob.GVK.GroupVersion().WithKind(trainjob.GVK.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, nil, cluster.Unread("list", "TrainJobs", namespace, err)
	}
	finished, copies := 0, 0
	for i := range list.Items {
		u := &list.Items[i]
		if _, isCopy := u.GetLabels()[kueue.MultiKueueOriginLabel]; isCopy {
			copies++
			continue
		}
		switch file, err := exportOne(u); {
		case err != nil:
			return nil, nil, fmt.Errorf("trainjob %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		case file == nil:
			finished++
		default:
			files = append(files, *file)
		}
	}
	if finished > 0 {
		left = append(left, show.Count(finished, "finished TrainJob")+" left out")
	}
	if copies > 0 {
		left = append(left, show.Count(copies, "TrainJob")+" left out, made by MultiKueue: export those of its manager cluster")
	}
	return files, left, nil
}

// exportOne returns nothing for a TrainJob that has finished.
func exportOne(u *unstructured.Unstructured) (*manifest.File, error) {
	var job trainjob.TrainJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &job); err != nil {
		return nil, err
	}
	if job.Finished() {
		return nil, nil
	}
	if err := withoutQueue(u, &job); err != nil {
		return nil, err
	}
	data, err := yaml.Marshal(asWritten(u))
	if err != nil {
		return nil, err
	}
	return manifest.Parse(u.GetNamespace()+"/"+u.GetName(), data), nil
}

// withoutQueue takes out what kueue-trainer put into the spec: its part of the patches, or who runs
// the TrainJob elsewhere, and with that the suspension. The in-tree integration puts an empty entry into TrainJobs in no queue
// as well: who suspended those is their user.
func withoutQueue(u *unstructured.Unstructured, job *trainjob.TrainJob) error {
	spec, _ := u.Object["spec"].(map[string]any)
	if job.ForMultiKueue() {
		delete(spec, "managedBy")
		delete(spec, "suspend")
	}
	for _, generation := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22} {
		field := patch.Of(generation)
		if !field.Has(&job.Spec) {
			continue
		}
		if patch.Patched(field, &job.Spec) || job.Labels[kueueconstants.QueueLabel] != "" {
			delete(spec, "suspend")
		}
		field.Drop(&job.Spec)
		others, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&job.Spec)
		if err != nil {
			return err
		}
		delete(spec, string(field))
		if left, some := others[string(field)]; some {
			spec[string(field)] = left
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
