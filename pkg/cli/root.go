// SPDX-License-Identifier: Apache-2.0

// Package cli puts the commands of the kubectl plugin together.
package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/doctor"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/handback"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/hold"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/list"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/logs"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/migrate"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/pools"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/shares"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/simulate"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/submit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/uninstall"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/usage"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/validate"
	versioncmd "github.com/kueue-trainer/kueue-trainer/pkg/cli/version"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

const long = `TrainJobs under Kueue's quotas: why one waits, what becomes of a manifest, which GPUs there
are, and whether the installation is in order.

All commands take kubectl's flags. With --as, and --as-group, you see what somebody else
would: admins find out so what their users may ask for. Colours are for terminals; NO_COLOR
turns them off. Exit codes: 0 in order, 1 the command could not work, 2 something is wrong,
3 there are warnings, 4 you may not see what the answer takes.`

const example = `  # Why does it wait?
  kubectl trainjob explain llm -n team-a

  # Is this manifest in order?
  kubectl trainjob validate -f job.yaml

  # Which GPUs are there, and who has them?
  kubectl trainjob pools

  # What does a colleague get to see?
  kubectl trainjob explain llm -n team-a --as jane --as-group ml-team`

// NewCommand returns the plugin's root command, with kubectl's usual flags.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	// Logs are as their program writes them.
	raw := streams
	streams.Out, streams.ErrOut = show.OnScreen(streams.Out), show.OnScreen(streams.ErrOut)
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	// What webhooks warn of is said as by kubectl.
	warnings := rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.WarningHandler = warnings
		return config
	}
	root := &cobra.Command{
		Use: "kubectl-trainjob", Short: "TrainJobs under Kueue's quotas",
		Long: long, Example: example,
		Version: version.Get().String(), SilenceUsage: true, SilenceErrors: true,
		// How users call it, in help and usage.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl trainjob"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainly(err) })
	flags.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("namespace", cluster.Complete(flags, true, &corev1.NamespaceList{}))
	_ = root.RegisterFlagCompletionFunc("context", flags.CompleteContexts)
	for _, command := range []func(cluster.Flags, genericiooptions.IOStreams) *cobra.Command{
		doctor.NewCommand,
		explain.NewCommand,
		list.NewCommand,
		pools.NewCommand,
		shares.NewCommand,
		simulate.NewCommand,
		migrate.NewCommand,
		submit.NewCommand,
		timeline.NewCommand,
		usage.NewCommand,
		validate.NewCommand,
		versioncmd.NewCommand,
	} {
		root.AddCommand(command(flags, streams))
	}
	root.AddCommand(logs.NewCommand(flags, raw), handback.NewCommand(flags.ClientIn, streams), uninstall.NewCommand(flags.Client, streams))
	root.AddCommand(hold.NewCommands(flags, streams)...)
	return root
}

// plainly says what is wrong with the value of a flag in words for people.
func plainly(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	if invalid.GetFlag().Value.Type() == "string" {
		return errors.Unwrap(invalid)
	}
	takes := map[string]string{
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "bool": "true or false", "duration": "a time like 90m or 4h",
	}[invalid.GetFlag().Value.Type()]
	if takes == "" {
		return err
	}
	return fmt.Errorf("--%s %s: it takes %s", invalid.GetFlag().Name, invalid.GetValue(), takes)
}
