// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kindcluster"
)

// newKindCommand returns the commands for a cluster of kind's, with the same components in pods.
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

func onKind(c *kindcluster.Cluster, use, short string, run func(*kindcluster.Cluster, context.Context) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) (err error) {
		if c.Dir, err = filepath.Abs(c.Dir); err != nil {
			return err
		}
		c.Out = cmd.OutOrStdout()
		// Images are for Linux, whatever this is.
		c.Builder = build.Builder{Repo: repo, LogDir: filepath.Join(c.Dir, "logs"), Out: c.Out, OS: "linux"}
		return run(c, cmd.Context())
	}}
}
