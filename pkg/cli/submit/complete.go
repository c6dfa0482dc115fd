// SPDX-License-Identifier: Apache-2.0

package submit

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// completions lets the shell complete names.
func (c *command) completions(cmd *cobra.Command) {
	for flag, list := range map[string]func() client.ObjectList{
		"runtime":  func() client.ObjectList { return &trainer.ClusterTrainingRuntimeList{} },
		"queue":    func() client.ObjectList { return &kueue.LocalQueueList{} },
		"priority": func() client.ObjectList { return &kueue.WorkloadPriorityClassList{} },
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			api, namespace, err := c.flags.ClientIn(flag != "queue")
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			found, err := names(cmd.Context(), api, list(), namespace)
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		})
	}
}
