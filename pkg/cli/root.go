// SPDX-License-Identifier: Apache-2.0

// Package cli puts the commands of the kubectl plugin together.
package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/doctor"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/handback"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/hold"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/list"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/logs"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/migrate"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/pools"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/submit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/uninstall"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/validate"
	versioncmd "github.com/kueue-trainer/kueue-trainer/pkg/cli/version"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

// NewCommand returns the plugin's root command, with kubectl's usual flags.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:           "kubectl-trainjob",
		Short:         "TrainJobs under Kueue's quotas",
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// How users call it, in help and usage.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl trainjob"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags.AddFlags(root.PersistentFlags())
	for _, command := range []func(cluster.Flags, genericiooptions.IOStreams) *cobra.Command{
		doctor.NewCommand,
		explain.NewCommand,
		handback.NewCommand,
		list.NewCommand,
		logs.NewCommand,
		pools.NewCommand,
		migrate.NewCommand,
		submit.NewCommand,
		timeline.NewCommand,
		uninstall.NewCommand,
		validate.NewCommand,
		versioncmd.NewCommand,
	} {
		root.AddCommand(command(flags, streams))
	}
	root.AddCommand(hold.NewCommands(flags, streams)...)
	return root
}
