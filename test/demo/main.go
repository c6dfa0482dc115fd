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
	"fmt"
	"os"
	"path/filepath"
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
		Play: playOnOwn, Down: down,
	}.Run)
}

// playOn plays on a cluster that is there, and takes away what it made.
func playOn(ctx context.Context, kubeconfig string) error {
	cluster, err := world.Use(kubeconfig)
	if err != nil {
		return err
	}
	s := newStage(cluster, os.Stdout)
	err = s.play(ctx)
	return errors.Join(err, s.strike(context.WithoutCancel(ctx)))
}

// playOnOwn starts from nothing, so that the story finds no objects of a demo that was killed.
func playOnOwn(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
		fmt.Println("A demo that was killed left its cluster behind:")
		if err := down(ctx, dir); err != nil {
			return err
		}
	}
	// Not our context: it would kill the launcher, perhaps between starting a process and
	// noting it down. Ctrl-C reaches the launcher itself, and it ends in order.
	cluster, err := world.Start(context.WithoutCancel(ctx), dir, os.Stdout)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return newStage(cluster, os.Stdout).play(ctx)
}

// down also takes away what a failed start left.
func down(ctx context.Context, dir string) error { return world.Down(ctx, dir, os.Stdout) }
