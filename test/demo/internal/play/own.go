// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// Main plays until that ends or is interrupted.
func Main(play func(context.Context) error) {
	// What libraries log is not for who watches a play.
	ctrl.SetLogger(logr.Discard())
	attempt.Main(show.Painter(os.Stderr).Red("error: "), play)
}

// Own are the clusters that a story has for itself, apart from those of `make local-up` and the specs.
type Own struct {
	// Dir is where they are, and Logs where their logs are, seen from the repository's root.
	Dir, Logs string
	// Settings are what the story's numbers were made for, whatever the caller exported.
	Settings map[string]string
	// Play brings the clusters up in a directory and plays.
	Play func(ctx context.Context, dir string) error
	// Down takes the clusters down, whatever happened.
	Down func(ctx context.Context, dir string) error
}

// Run makes sure that no other story of this working copy is at work there: each takes its clusters down.
func (o Own) Run(ctx context.Context) (err error) {
	root, err := world.Root()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, o.Dir)
	lock, err := attempt.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	for name, value := range o.Settings {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	err = o.Play(ctx, dir)
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case err != nil:
		err = fmt.Errorf("%w\nThe logs are in %s: look at kueue-trainer.log and kueue.log first", err, filepath.Join(o.Dir, o.Logs))
	}
	fmt.Println()
	return errors.Join(err, o.Down(context.WithoutCancel(ctx), dir))
}
