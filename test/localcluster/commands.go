// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
)

// options are what the flags set; each has an environment variable as its default, so
// that `make local-up NODES=100` works.
type options struct {
	localDir    string
	nodes       int
	integration string
	trainer     string
	kubernetes  string
	workers     int
	lease       time.Duration
}

func newCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "localcluster",
		Short:         "A real Kubernetes control plane with Kueue, JobSet and Trainer, as plain processes on loopback",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&o.localDir, "local-dir", fromEnv("LOCAL_DIR", ".local"),
		"directory that holds the cluster: kubeconfig, logs, data [$LOCAL_DIR]")
	root.AddCommand(
		o.withSettings("build", "Build the binaries that are missing or out of date", (*cluster.Cluster).Build),
		o.withSettings("up", "Build, and start everything that is not running", (*cluster.Cluster).Up),
		o.withSettings("crds", "Install the CRDs of a newer Trainer and nothing else, the first step of an upgrade", (*cluster.Cluster).UpgradeCRDs),
		o.plain("down", "Stop everything and remove all but the logs", (*cluster.Cluster).Down),
		o.plain("status", "Show the processes and their health", (*cluster.Cluster).Status),
		o.onComponent("start", "Start one component", (*cluster.Cluster).Start),
		o.onComponent("stop", "Stop one component (SIGTERM)", (*cluster.Cluster).Stop),
		o.onComponent("kill", "Kill one component (SIGKILL), as a crash would", (*cluster.Cluster).Kill),
		o.onComponent("restart", "Stop and start one component", (*cluster.Cluster).Restart),
		newKindCommand(),
		newFleetCommand(),
	)
	return root
}

// withSettings is a command that takes the cluster's settings.
func (o *options) withSettings(use, short string, run func(*cluster.Cluster, context.Context, cluster.Settings) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	nodes, errNodes := number("NODES", "8")
	workers, errWorkers := number("IN_TREE_WORKERS", "0")
	cmd.Flags().IntVar(&o.nodes, "nodes", nodes, "number of GPU nodes, half H100 and half A100; two CPU nodes come on top [$NODES]")
	cmd.Flags().StringVar(&o.integration, "integration", fromEnv("INTEGRATION", string(cluster.External)),
		"who integrates TrainJobs with Kueue: external (kueue-trainer), in-tree (Kueue itself) or both at once, which shows what happens then [$INTEGRATION]")
	cmd.Flags().StringVar(&o.trainer, "trainer", os.Getenv("TRAINER"), fmt.Sprintf(
		"generation of Trainer, with its JobSet: %s; a new cluster gets the last of these, a running one keeps its own [$TRAINER]",
		strings.Join(build.TrainerNames(), ", ")))
	cmd.Flags().StringVar(&o.kubernetes, "kubernetes", os.Getenv("KUBERNETES"), fmt.Sprintf(
		"version of the control plane: %s; a new cluster gets the first of these, a running one keeps its own [$KUBERNETES]",
		strings.Join(build.KubernetesNames(), ", ")))
	cmd.Flags().IntVar(&o.workers, "in-tree-workers", workers,
		"TrainJobs that Kueue's own integration reconciles at a time; 0: as Kueue is shipped, one [$IN_TREE_WORKERS]")
	cmd.Flags().DurationVar(&o.lease, "lease", 0, "leader lease of kueue-trainer; 0: 6s, which is short for tests that kill it. A busy machine wants a longer one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for flag, err := range map[string]error{"nodes": errNodes, "in-tree-workers": errWorkers} {
			if err != nil && !cmd.Flags().Changed(flag) {
				return err
			}
		}
		settings, err := o.settings()
		if err != nil {
			return err
		}
		c, err := o.cluster(cmd)
		if err != nil {
			return err
		}
		return run(c, cmd.Context(), settings)
	}
	return cmd
}

func (o *options) settings() (cluster.Settings, error) {
	settings := cluster.Settings{Nodes: o.nodes, Integration: cluster.Integration(o.integration), InTreeWorkers: o.workers, Lease: o.lease}
	if o.trainer != "" {
		var err error
		if settings.Trainer, err = build.FindTrainer(o.trainer); err != nil {
			return settings, err
		}
	}
	if o.kubernetes != "" {
		var err error
		if settings.Kubernetes, err = build.FindKubernetes(o.kubernetes); err != nil {
			return settings, err
		}
	}
	return settings, settings.Validate()
}

// plain is a command on the whole cluster.
func (o *options) plain(use, short string, run func(*cluster.Cluster, context.Context) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := o.cluster(cmd)
		if err != nil {
			return err
		}
		return run(c, cmd.Context())
	}}
}

// onComponent is a command on one component.
func (o *options) onComponent(verb, short string, run func(*cluster.Cluster, context.Context, string) error) *cobra.Command {
	return &cobra.Command{Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		c, err := o.cluster(cmd)
		if err != nil {
			return err
		}
		return run(c, cmd.Context(), args[0])
	}}
}

func (o *options) cluster(cmd *cobra.Command) (*cluster.Cluster, error) {
	repo, err := build.FindRepo()
	if err != nil {
		return nil, err
	}
	return cluster.New(repo, o.localDir, cmd.OutOrStdout())
}

// number is what an environment variable says.
func number(name, fallback string) (int, error) {
	n, err := strconv.Atoi(fromEnv(name, fallback))
	if err != nil {
		err = fmt.Errorf("%s must be a number: %w", name, err)
	}
	return n, err
}

func fromEnv(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}
