// SPDX-License-Identifier: Apache-2.0

// Package cluster connects the plugin's commands to the cluster that kubectl's flags name.
//
// cluster.go has the flags and clients, reach.go errors of clusters that cannot be reached,
// names.go and complete.go the names that users give and the shell completes, trainjobs.go reads TrainJobs. parts.go knows the
// managers that work together, manager.go finds kueue-trainer's and Kueue's configurations.
package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
)

// Flags are kubectl's usual ones: --kubeconfig, --context, --namespace and their like.
type Flags struct{ *genericclioptions.ConfigFlags }

// Config is what every client of a command connects with.
func (f Flags) Config() (*rest.Config, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return installed.Hurried(config), nil
}

// Client connects to the cluster. Nothing is cached.
func (f Flags) Client() (client.WithWatch, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	return installed.Connect(config)
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

// ClientIn connects to the cluster, and names the namespace that a command works in.
func (f Flags) ClientIn(all bool) (client.WithWatch, string, error) {
	namespace, err := f.InNamespace(all)
	if err != nil {
		return nil, "", err
	}
	c, err := f.Client()
	return c, namespace, err
}

// What is known of an installation without flags.
var (
	Scheme       = installed.Scheme
	Generation   = installed.Generation
	ErrNoTrainer = installed.ErrNoTrainer
)
