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
	"os/signal"
	"syscall"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// storyLimit ends a story that hangs; on an idle machine it takes well below a minute.
const storyLimit = 5 * time.Minute

func main() {
	// Libraries have flags of their own in the set of all.
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "play on the cluster of this file")
	_ = flags.Parse(os.Args[1:]) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	play := run
	if *kubeconfig != "" {
		play = func(ctx context.Context) error { return playOn(ctx, *kubeconfig) }
	}
	err := play(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, newPaint(os.Stderr).red("error: ")+err.Error())
		os.Exit(1)
	}
}

// playOn plays on a cluster that is there, and takes away what it made.
func playOn(ctx context.Context, kubeconfig string) error {
	cluster, err := world.Use(kubeconfig)
	if err != nil {
		return err
	}
	playing, cancel := context.WithTimeout(ctx, storyLimit)
	defer cancel()
	s := newStage(cluster.Client, os.Stdout)
	err = s.play(playing)
	return errors.Join(err, s.strike(context.WithoutCancel(ctx)))
}

// run brings the cluster up, plays, and takes the cluster down whatever happened.
func run(ctx context.Context) (err error) {
	local, err := openLocal()
	if err != nil {
		return err
	}
	defer local.close()
	defer func() {
		if err != nil && !errors.Is(err, errInterrupted) {
			err = fmt.Errorf("%w\nThe logs are in %s: look at kueue-trainer.log and kueue.log first", err, local.logs())
		}
		fmt.Println()
		err = errors.Join(err, local.down())
	}()
	cluster, err := local.up(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	ctx, cancel := context.WithTimeout(ctx, storyLimit)
	defer cancel()
	return newStage(cluster.Client, os.Stdout).play(ctx)
}
