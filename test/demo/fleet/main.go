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
	"os"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// storyLimit ends a story that hangs; on an idle machine it takes about a minute.
const storyLimit = 8 * time.Minute

func main() {
	play.Main(play.Own{
		Dir: ".fleet-demo", Logs: "*/logs",
		Settings: map[string]string{"NODES": "8", "FLEET_MANAGER": "external", "FLEET_WORKERS": "external,external"},
		Play: func(ctx context.Context, dir string) error {
			fleet, err := world.StartFleet(ctx, dir, os.Stdout)
			if err != nil {
				return err
			}
			return play.Play(ctx, storyLimit, func(ctx context.Context) { newStory(os.Stdout).play(ctx, fleet) })
		},
		Down: func(ctx context.Context, dir string) error { return world.DownFleet(ctx, dir, os.Stdout) },
	}.Run)
}
