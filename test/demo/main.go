// SPDX-License-Identifier: Apache-2.0

// Command demo plays the main job on a local control plane of its own: TrainJobs of two
// teams under quota on two pools of GPU nodes. It prints what the API server shows as it
// happens, checks that the story came true, and takes the cluster down. With -kubeconfig it
// plays on a cluster that is there, such as one of make kind-up, and leaves that as it was.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// storyLimit ends a story that hangs; on an idle machine it takes well below a minute.
const storyLimit = 5 * time.Minute

func main() {
	// Libraries have flags of their own in the set of all.
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "play on the cluster of this file")
	_ = flags.Parse(os.Args[1:]) // it exits
	if *kubeconfig != "" {
		play.Main(func(ctx context.Context) error { return playOn(ctx, *kubeconfig) })
		return
	}
	play.Main(play.Own{
		Dir: ".local-demo", Logs: "logs", Settings: map[string]string{"NODES": "8", "INTEGRATION": "external"},
		Play: func(ctx context.Context, dir string) error {
			cluster, err := world.Start(ctx, dir, os.Stdout)
			if err != nil {
				return err
			}
			return play.Play(ctx, storyLimit, newStage(cluster, os.Stdout).play)
		},
		// What a failed start left is taken away, too.
		Down: func(ctx context.Context, dir string) error { return world.Down(ctx, dir, os.Stdout) },
	}.Run)
}

// playOn plays on a cluster that is there, and takes away what it made.
func playOn(ctx context.Context, kubeconfig string) error {
	cluster, err := world.Use(kubeconfig)
	if err != nil {
		return err
	}
	s := newStage(cluster, os.Stdout)
	err = play.Play(ctx, storyLimit, s.play)
	return errors.Join(err, s.strike(context.WithoutCancel(ctx)))
}
