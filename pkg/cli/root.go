// SPDX-License-Identifier: Apache-2.0

// Package cli holds the commands of the kubectl plugin.
package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// NewCommand gives the plugin's root command, with kubectl's usual flags.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	root := &cobra.Command{
		Use:           "kubectl-trainjob",
		Short:         "TrainJobs under Kueue's quotas",
		SilenceUsage:  true,
		SilenceErrors: true,
		// How users call it, in help and usage.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl trainjob"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags.AddFlags(root.PersistentFlags())
	root.AddCommand(newHandBack(flags, streams))
	return root
}

// newClient connects to the cluster that the flags name.
func newClient(flags *genericclioptions.ConfigFlags) (client.Client, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		batchv1.AddToScheme, jobsetapi.AddToScheme, trainjob.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return client.New(config, client.Options{Scheme: scheme})
}
