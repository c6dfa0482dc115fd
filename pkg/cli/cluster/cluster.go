// SPDX-License-Identifier: Apache-2.0

// Package cluster connects the plugin's commands to the cluster that kubectl's flags name.
//
// cluster.go has the flags and clients, reach.go errors of clusters that cannot be reached,
// names.go and complete.go the names that users give and the shell completes, trainjobs.go reads TrainJobs. parts.go knows the
// managers that work together, manager.go finds kueue-trainer's and Kueue's configurations.
package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Flags are kubectl's usual ones: --kubeconfig, --context, --namespace and their like.
type Flags struct{ *genericclioptions.ConfigFlags }

// Scheme has every kind that the commands look at. TrainJobs come as trainjob.TrainJob.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetapi.AddToScheme, kueue.AddToScheme, visibility.AddToScheme, trainjob.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// Config is what every client of a command connects with.
func (f Flags) Config() (*rest.Config, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	// A command asks much at once, and then never again; kubectl has the same limits.
	config.QPS, config.Burst = 50, 300
	return config, nil
}

// Client connects to the cluster. Nothing is cached.
func (f Flags) Client() (client.WithWatch, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// InNamespace is the namespace that a command works in: that of --namespace or of the
// kubeconfig's context, or every one.
func (f Flags) InNamespace(all bool) (string, error) {
	if all {
		return corev1.NamespaceAll, nil
	}
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// ErrNoTrainer is why there are no TrainJobs at all.
var ErrNoTrainer = errors.New("install Kubeflow Trainer 2.1 or later")

// Generation tells the generation of Trainer that the cluster serves.
func Generation(ctx context.Context, c client.Reader) (trainjob.TrainerVersion, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	err := c.Get(ctx, client.ObjectKey{Name: trainjob.CRDName}, &crd)
	if apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("the cluster has no CRD %s: %w", trainjob.CRDName, ErrNoTrainer)
	}
	if err != nil {
		return 0, fmt.Errorf("reading CRD %s: %w", trainjob.CRDName, err)
	}
	return trainjob.TrainerVersionOf(&crd)
}
