// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/fleet"
)

// fleetOptions are what the flags of `fleet` set.
type fleetOptions struct {
	dir     string
	manager string
	workers []string
	nodes   int
}

// newFleetCommand returns the commands for several clusters that MultiKueue connects.
func newFleetCommand() *cobra.Command {
	o := &fleetOptions{}
	root := &cobra.Command{Use: "fleet", Short: "A manager cluster and two workers, connected by MultiKueue"}
	root.PersistentFlags().StringVar(&o.dir, "dir", ".fleet",
		"directory that holds a cluster each in manager, worker1 and worker2, and a kubeconfig with a context for each [$FLEET_DIR]")
	up := o.command("up", "Build, start everything that is not running, and connect the clusters", true, (*fleet.Fleet).Up)
	const choice = "INTEGRATION or INTEGRATION:TRAINER, such as in-tree or external:2.2"
	up.Flags().StringVar(&o.manager, "manager", string(cluster.External), "the manager cluster: "+choice+" [$FLEET_MANAGER]")
	up.Flags().StringSliceVar(&o.workers, "workers", []string{string(cluster.External), string(cluster.External)},
		"the workers: "+choice+", for each [$FLEET_WORKERS]")
	up.Flags().IntVar(&o.nodes, "nodes", 8, "number of GPU nodes of each worker [$NODES]")
	root.AddCommand(up, o.command("down", "Stop all clusters and remove all but the logs", false, (*fleet.Fleet).Down))
	return root
}

func (o *fleetOptions) command(use, short string, chosen bool, run func(*fleet.Fleet, context.Context) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		repo, err := build.FindRepo()
		if err != nil {
			return err
		}
		var choices []fleet.Choice
		if chosen {
			if choices, err = o.choices(); err != nil {
				return err
			}
		}
		f, err := fleet.New(repo, o.dir, cmd.OutOrStdout(), o.nodes, choices...)
		if err != nil {
			return err
		}
		return run(f, cmd.Context())
	}}
}

// choices are of the manager cluster first.
func (o *fleetOptions) choices() ([]fleet.Choice, error) {
	if len(o.workers) != len(fleet.Workers) {
		return nil, fmt.Errorf("FLEET_WORKERS=%s: must name %d, separated by a comma", strings.Join(o.workers, ","), len(fleet.Workers))
	}
	var choices []fleet.Choice
	for _, text := range append([]string{o.manager}, o.workers...) {
		c, err := fleet.ParseChoice(text)
		if err != nil {
			return nil, err
		}
		choices = append(choices, c)
	}
	return choices, nil
}
