// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// runtimes reads those that files define and, if there is one, those of a cluster. Of one
// that both have the file's counts.
type runtimes struct {
	client.Reader

	// namespace is for what names none.
	namespace   string
	cluster     client.Reader
	clusterWide map[string]*trainer.ClusterTrainingRuntime
	namespaced  map[client.ObjectKey]*trainer.TrainingRuntime
}

func newRuntimes(namespace string, cluster client.Reader) *runtimes {
	return &runtimes{
		namespace: namespace, cluster: cluster,
		clusterWide: map[string]*trainer.ClusterTrainingRuntime{},
		namespaced:  map[client.ObjectKey]*trainer.TrainingRuntime{},
	}
}

// add takes the runtimes of files.
func (r *runtimes) add(files []manifest.File) error {
	for _, file := range files {
		for i := range file.Documents {
			if err := r.addDocument(&file.Documents[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runtimes) addDocument(doc *manifest.Document) (err error) {
	switch group := trainer.GroupVersion.Group; {
	case doc.Of(group, trainer.ClusterTrainingRuntimeKind):
		var rt trainer.ClusterTrainingRuntime
		if err = yaml.Unmarshal(doc.Text(), &rt); err == nil {
			r.clusterWide[rt.Name] = &rt
		}
	case doc.Of(group, trainer.TrainingRuntimeKind):
		var rt trainer.TrainingRuntime
		if err = yaml.Unmarshal(doc.Text(), &rt); err == nil {
			if rt.Namespace == "" {
				rt.Namespace = r.namespace
			}
			r.namespaced[client.ObjectKeyFromObject(&rt)] = &rt
		}
	}
	if err != nil {
		return fmt.Errorf("%s: the runtime that begins in line %d: %w", doc.Path, doc.Line, err)
	}
	return nil
}

// Get implements client.Reader for runtimes.
func (r *runtimes) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch obj := obj.(type) {
	case *trainer.ClusterTrainingRuntime:
		if found, ok := r.clusterWide[key.Name]; ok {
			found.DeepCopyInto(obj)
			return nil
		}
	case *trainer.TrainingRuntime:
		if found, ok := r.namespaced[key]; ok {
			found.DeepCopyInto(obj)
			return nil
		}
	}
	if r.cluster == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.String())
	}
	return r.cluster.Get(ctx, key, obj, opts...)
}
