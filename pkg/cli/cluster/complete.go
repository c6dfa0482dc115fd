// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// CompleteTrainJobs offers the names of TrainJobs that are not given yet to the shell.
func CompleteTrainJobs(flags Flags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := flags.ClientIn(false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var list trainjob.List
		if err := c.List(cmd.Context(), &list, client.InNamespace(namespace)); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for i := range list.Items {
			if !slices.Contains(args, list.Items[i].Name) {
				names = append(names, list.Items[i].Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
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
