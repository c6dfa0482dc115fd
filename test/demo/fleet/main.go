// SPDX-License-Identifier: Apache-2.0

// Command fleet plays what several clusters are for, on three local control planes of its own:
// TrainJobs of one queue spread over two workers, one worker dies, and its job comes back in the
// other. It prints what the API servers show as it happens, checks that the story came true, and
// takes the clusters down.
//
// story.go is the story, sites.go asks the clusters.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	fleetDir = ".fleet-demo"
	// storyLimit ends a story that hangs; on an idle machine it takes about a minute.
	storyLimit = 8 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run brings the fleet up, plays, and takes the fleet down whatever happened.
func run(ctx context.Context) (err error) {
	root, err := world.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, fleetDir)
	lock, err := world.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	// What the story's numbers were made for, whatever the caller exported.
	for name, value := range map[string]string{"NODES": "8", "FLEET_MANAGER": "external", "FLEET_WORKERS": "external,external"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	fleet, err := world.StartFleet(ctx, dir, os.Stdout)
	if err != nil {
		return err
	}
	defer func() {
		switch {
		case ctx.Err() != nil:
			err = errors.New("interrupted")
		case err != nil:
			err = fmt.Errorf("%w\nThe logs are in %s/*/logs: look at kueue.log and kueue-trainer.log first", err, fleetDir)
		}
		fmt.Println()
		err = errors.Join(err, fleet.Stop(context.WithoutCancel(ctx), os.Stdout))
	}()
	playing, cancel := context.WithTimeout(ctx, storyLimit)
	defer cancel()
	return newStory(fleet, os.Stdout).play(playing)
}
