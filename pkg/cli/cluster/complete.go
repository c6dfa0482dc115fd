// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Names lists those of a kind, sorted.
func Names(ctx context.Context, c client.Reader, list client.ObjectList, namespace string) ([]string, error) {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var names []string
	err := meta.EachListItem(list, func(item runtime.Object) error {
		names = append(names, item.(client.Object).GetName())
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Complete offers the names of a kind to the shell: those of the namespace, or all.
func Complete(flags Flags, all bool, list func() client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := flags.ClientIn(all)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := Names(cmd.Context(), c, list(), namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteTrainJobs offers the names of TrainJobs that are not given yet to the shell.
func CompleteTrainJobs(flags Flags) cobra.CompletionFunc {
	all := Complete(flags, false, func() client.ObjectList { return &trainjob.List{} })
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		names, directive := all(cmd, args, toComplete)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}

// CompleteTrainJob is CompleteTrainJobs for a command that takes one name.
func CompleteTrainJob(flags Flags) cobra.CompletionFunc {
	complete := CompleteTrainJobs(flags)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, toComplete)
	}
}
