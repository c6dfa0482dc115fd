// SPDX-License-Identifier: Apache-2.0

// Command localcluster builds, starts and stops a real Kubernetes control plane with Kueue, JobSet, Trainer and
// kueue-trainer on this machine: plain processes on loopback, fake GPU nodes, everything it writes below one directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/fleet"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kindcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}

// repo is the root of the repository, and localDir what --local-dir says.
var repo, localDir string

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "localcluster",
		Short:         "A real Kubernetes control plane with Kueue, JobSet and Trainer, as plain processes on loopback",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			err = attempt.To(func() { repo = build.FindRepo() })
			return errors.Join(err, fromEnvironment(cmd.Flags()))
		},
	}
	root.PersistentFlags().StringVar(&localDir, "local-dir", ".local", "directory that holds the cluster: kubeconfig, logs, data [$LOCAL_DIR]")
	root.AddCommand(
		withSettings("build", "Build the binaries that are missing or out of date", (*cluster.Cluster).Build),
		withSettings("up", "Build, and start everything that is not running", (*cluster.Cluster).Up),
		withSettings("crds", "Install the CRDs of a newer Trainer and nothing else, the first step of an upgrade", (*cluster.Cluster).UpgradeCRDs),
		plain("down", "Stop everything and remove all but the logs", (*cluster.Cluster).Down),
		plain("status", "Show the processes and their health", (*cluster.Cluster).Status),
		onComponent("start", "Start one component"),
		onComponent("stop", "Stop one component (SIGTERM)"),
		onComponent("kill", "Kill one component (SIGKILL), as a crash would"),
		onComponent("restart", "Stop and start one component"),
		newKindCommand(),
		newFleetCommand(),
	)
	return root
}

// variable is the environment variable that the text of a flag names.
var variable = regexp.MustCompile(`\[\$(\w+)\]$`)

// fromEnvironment sets the flags that were not given, so that `make local-up NODES=100` works.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(flag *pflag.Flag) {
		named := variable.FindStringSubmatch(flag.Usage)
		if named == nil || flag.Changed || os.Getenv(named[1]) == "" {
			return
		}
		if invalid := flags.Set(flag.Name, os.Getenv(named[1])); invalid != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", named[1], invalid))
		}
	})
	return err
}

func withSettings(use, short string, run func(*cluster.Cluster, context.Context, cluster.Settings)) *cobra.Command {
	var s cluster.Settings
	cmd := plain(use, short, func(c *cluster.Cluster, ctx context.Context) {
		attempt.Succeed(s.Validate())
		run(c, ctx, s)
	})
	cmd.Flags().IntVar(&s.Nodes, "nodes", 8, "number of GPU nodes, half H100 and half A100; two CPU nodes come on top [$NODES]")
	cmd.Flags().StringVar((*string)(&s.Integration), "integration", string(cluster.External),
		"who integrates TrainJobs with Kueue: external (kueue-trainer), in-tree (Kueue itself) or both at once, which shows what happens then [$INTEGRATION]")
	cmd.Flags().StringVar(&s.Trainer, "trainer", "", fmt.Sprintf(
		"`generation` of Trainer, with its JobSet: %s; a new cluster gets the last of these, a running one keeps its own [$TRAINER]",
		strings.Join(build.Trainers, ", ")))
	cmd.Flags().StringVar(&s.Kubernetes, "kubernetes", "", fmt.Sprintf(
		"`version` of the control plane: %s; a new cluster gets the first of these, a running one keeps its own [$KUBERNETES]",
		strings.Join(build.KubernetesVersions, ", ")))
	cmd.Flags().IntVar(&s.InTreeWorkers, "in-tree-workers", 0,
		"TrainJobs that Kueue's own integration reconciles at a time; 0: as Kueue is shipped, one [$IN_TREE_WORKERS]")
	return cmd
}

func plain(use, short string, run func(*cluster.Cluster, context.Context)) *cobra.Command {
	return command(use, short, func(cmd *cobra.Command, _ []string) {
		run(cluster.New(repo, localDir, cmd.OutOrStdout()), cmd.Context())
	})
}

func onComponent(verb, short string) *cobra.Command {
	cmd := command(verb+" NAME", short, func(cmd *cobra.Command, args []string) {
		cluster.New(repo, localDir, cmd.OutOrStdout()).Control(cmd.Context(), verb, args[0])
	})
	cmd.Args = cobra.ExactArgs(1)
	return cmd
}

// command is one that takes no arguments.
func command(use, short string, run func(*cobra.Command, []string)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, args []string) error {
		return attempt.To(func() { run(cmd, args) })
	}}
}

func newKindCommand() *cobra.Command {
	kind := &cobra.Command{Use: "kind", Short: "The same in pods, on a cluster of kind's"}
	c := &kindcluster.Cluster{}
	kind.PersistentFlags().StringVar(&c.Name, "name", build.KueueTrainer, "name of the kind cluster [$KIND_NAME]")
	kind.PersistentFlags().StringVar(&c.Dir, "dir", ".kind", "directory for its kubeconfig and images [$KIND_DIR]")
	up := onKind(c, "up", "Make the cluster, or bring it up to date", (*kindcluster.Cluster).Up)
	up.Flags().StringVar(&c.Image, "image", kindcluster.DefaultImage, "image of the nodes [$KIND_IMAGE]")
	up.Flags().IntVar(&c.FakeNodes, "nodes", 8, "number of fake GPU nodes, half H100 and half A100 [$NODES]")
	kind.AddCommand(up, onKind(c, "down", "Delete the cluster", (*kindcluster.Cluster).Down))
	return kind
}

func onKind(c *kindcluster.Cluster, use, short string, run func(*kindcluster.Cluster, context.Context)) *cobra.Command {
	return command(use, short, func(cmd *cobra.Command, _ []string) {
		c.Dir = attempt.Must(filepath.Abs(c.Dir))
		// Images are for Linux, whatever this is.
		c.Builder = build.Builder{Repo: repo, LogDir: filepath.Join(c.Dir, "logs"), Out: cmd.OutOrStdout(), OS: "linux"}
		run(c, cmd.Context())
	})
}

func newFleetCommand() *cobra.Command {
	var dir, manager string
	var workers []string
	var nodes int
	root := &cobra.Command{Use: "fleet", Short: "A manager cluster and two workers, connected by MultiKueue"}
	root.PersistentFlags().StringVar(&dir, "dir", ".fleet",
		"directory that holds a cluster each in manager, worker1 and worker2, and a kubeconfig with a context for each [$FLEET_DIR]")
	up := command("up", "Build, start everything that is not running, and connect the clusters", func(cmd *cobra.Command, _ []string) {
		fleet.New(repo, dir, cmd.OutOrStdout(), nodes, append([]string{manager}, workers...)...).Up(cmd.Context())
	})
	const choice = "INTEGRATION or INTEGRATION:TRAINER, such as in-tree or external:2.2"
	up.Flags().StringVar(&manager, "manager", string(cluster.External), "the manager cluster: "+choice+" [$FLEET_MANAGER]")
	up.Flags().StringSliceVar(&workers, "workers", []string{string(cluster.External), string(cluster.External)},
		"the workers: "+choice+", for each [$FLEET_WORKERS]")
	up.Flags().IntVar(&nodes, "nodes", 8, "number of GPU nodes of each worker [$NODES]")
	root.AddCommand(up, command("down", "Stop all clusters and remove all but the logs", func(cmd *cobra.Command, _ []string) {
		fleet.New(repo, dir, cmd.OutOrStdout(), nodes).Down(cmd.Context())
	}))
	return root
}
