// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/fleet"
)

// newFleetCommand returns the commands for several clusters that MultiKueue connects.
func newFleetCommand() *cobra.Command {
	var dir, manager string
	var workers []string
	var nodes int
	command := func(use, short string, run func(*fleet.Fleet, context.Context) error, choices func() []string) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := fleet.New(repo, dir, cmd.OutOrStdout(), nodes, choices()...)
			if err != nil {
				return err
			}
			return run(f, cmd.Context())
		}}
	}
	root := &cobra.Command{Use: "fleet", Short: "A manager cluster and two workers, connected by MultiKueue"}
	root.PersistentFlags().StringVar(&dir, "dir", ".fleet",
		"directory that holds a cluster each in manager, worker1 and worker2, and a kubeconfig with a context for each [$FLEET_DIR]")
	up := command("up", "Build, start everything that is not running, and connect the clusters", (*fleet.Fleet).Up,
		func() []string { return append([]string{manager}, workers...) })
	const choice = "INTEGRATION or INTEGRATION:TRAINER, such as in-tree or external:2.2"
	up.Flags().StringVar(&manager, "manager", string(cluster.External), "the manager cluster: "+choice+" [$FLEET_MANAGER]")
	up.Flags().StringSliceVar(&workers, "workers", []string{string(cluster.External), string(cluster.External)},
		"the workers: "+choice+", for each [$FLEET_WORKERS]")
	up.Flags().IntVar(&nodes, "nodes", 8, "number of GPU nodes of each worker [$NODES]")
	root.AddCommand(up, command("down", "Stop all clusters and remove all but the logs", (*fleet.Fleet).Down, func() []string { return nil }))
	return root
}
