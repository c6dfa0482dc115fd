// SPDX-License-Identifier: Apache-2.0

// Command demo plays the main job on a local control plane of its own: TrainJobs of two
// teams under quota on two pools of GPU nodes. It prints what the API server shows as it
// happens, checks that the story came true, and takes the cluster down. With -kubeconfig it
// plays on a cluster that is there, such as one of make kind-up, and leaves that as it was.
// With -fleet it plays what several clusters are for, on three of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// storyLimit ends a story that hangs; on an idle machine it takes about a minute.
	storyLimit = 8 * time.Minute
	// stepLimit is how long one step may take. A step takes seconds; a busy machine is given time.
	stepLimit = 2 * time.Minute
	lookEvery = 300 * time.Millisecond
	// suffix keeps the names of what a story makes apart from others.
	suffix = "demo"
)

func main() {
	// Libraries have flags of their own in the set of all.
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "play on the cluster of this file")
	fleet := flags.Bool("fleet", false, "play what several clusters are for, on three of its own")
	_ = flags.Parse(os.Args[1:]) // it exits
	// What libraries log is not for who watches a play.
	ctrl.SetLogger(logr.Discard())
	attempt.Main(show.Painter(os.Stderr).Red("error: "), func(ctx context.Context) {
		switch {
		case *fleet:
			playOnOwn(ctx, ".fleet-demo", "*/logs", playFleet, world.DownFleet)
		case *kubeconfig != "":
			s := newStory(attempt.Must(world.Use(*kubeconfig)))
			playThen(ctx, func() { limited(ctx, s.play) }, s.strike, "")
		default:
			playOnOwn(ctx, ".local-demo", "logs", playMainJob, world.Down)
		}
	})
}

func playMainJob(ctx context.Context, dir string) {
	limited(ctx, newStory(attempt.Must(world.Start(ctx, dir, os.Stdout))).play)
}

// settings are what the stories' numbers were made for, whatever the caller exported.
var settings = map[string]string{"NODES": "8", "INTEGRATION": "external", "FLEET_MANAGER": "external", "FLEET_WORKERS": "external,external"}

// playOnOwn plays on clusters that a story has for itself, apart from those of `make local-up` and the specs. They
// are in dir, and their logs in a directory of that. It makes sure that no other story of this working copy is at
// work there, and takes away what a failed start left, too.
func playOnOwn(
	ctx context.Context, dir, logs string, play func(ctx context.Context, dir string), down func(ctx context.Context, dir string, progress io.Writer) error,
) {
	logs = filepath.Join(dir, logs)
	dir = filepath.Join(attempt.Must(world.Root()), dir)
	lock := attempt.Must(attempt.Lock(dir))
	defer lock.Close()
	for name, value := range settings {
		attempt.Succeed(os.Setenv(name, value))
	}
	hint := fmt.Sprintf("\nThe logs are in %s: look at kueue-trainer.log and kueue.log first", logs)
	playThen(ctx, func() { play(ctx, dir) }, func(ctx context.Context) error {
		fmt.Println()
		return down(ctx, dir, os.Stdout)
	}, hint)
}

// playThen plays, and then deletes what was made for that, be it interrupted or not. A hint comes after the error.
func playThen(ctx context.Context, play func(), end func(context.Context) error, hint string) {
	err := attempt.To(play)
	switch {
	// Ctrl-C comes before the errors that it leads to.
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	case err != nil:
		err = fmt.Errorf("%w%s", err, hint)
	}
	attempt.Succeed(errors.Join(err, end(context.WithoutCancel(ctx))))
}

// limited plays a story until it is over, which it has to be in time.
func limited(ctx context.Context, story func(context.Context)) {
	ctx, cancel := context.WithTimeoutCause(ctx, storyLimit, fmt.Errorf("within the story's %s", storyLimit))
	defer cancel()
	story(ctx)
}

// teller tells a story of what is seen of clusters while it is played.
type teller struct {
	paint show.Paint
	// start is the zero of the elapsed times.
	start time.Time
	// width is that of the names of those of whom the story tells.
	width int
	// look tells what is new, and fails where it spoils the story.
	look func(context.Context)
}

// claim is a sentence about the cluster, whether it is so, and what is so otherwise.
type claim struct {
	text      string
	is        func() bool
	otherwise func() string
}

// await looks at what comes until all claims hold, and says what does not when that takes too long.
func (t *teller) await(ctx context.Context, claims ...claim) {
	ctx, cancel := context.WithTimeoutCause(ctx, stepLimit, fmt.Errorf("within %s", stepLimit))
	defer cancel()
	for {
		open := firstUntrue(claims)
		if open == "" {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
		err := attempt.To(func() { t.look(ctx) })
		if ctx.Err() != nil {
			attempt.Fail("this did not come true %w: %s", context.Cause(ctx), open)
		}
		attempt.Succeed(err, "the story awaited: %s", open)
	}
}

// firstUntrue returns the first claim that does not hold and why, or "".
func firstUntrue(claims []claim) string {
	for _, c := range claims {
		if !c.is() {
			return fmt.Sprintf("%s (%s)", c.text, c.otherwise())
		}
	}
	return ""
}

// verify prints which claims came true, and ends the story where one did not.
func (t *teller) verify(claims ...claim) {
	fmt.Println("\nChecked on what was seen:")
	var untrue []string
	for _, c := range claims {
		mark, text := t.paint.Green("true  "), c.text
		if !c.is() {
			mark, text = t.paint.Red("UNTRUE"), fmt.Sprintf("%s: %s", c.text, c.otherwise())
			untrue = append(untrue, text)
		}
		fmt.Printf("  %s  %s\n", mark, text)
	}
	if len(untrue) > 0 {
		attempt.Fail("the story did not come true:\n  %s", strings.Join(untrue, "\n  "))
	}
}

// plain is the colour of most that is told.
func plain(text string) string { return text }

func (t *teller) say(who string, colour func(string) string, text string) {
	fmt.Printf("%s  %-*s  %s\n", t.paint.Dim(fmt.Sprintf("%6.1fs", time.Since(t.start).Seconds())), t.width, who, colour(text))
}

// site is a team's namespace, with a queue, in a cluster. What fails ends the story.
type site struct{ *world.World }

func newSite(ctx context.Context, cluster *world.Cluster, team string) site {
	return site{world.New(ctx, attempt.Gomega(), io.Discard, cluster, team, suffix)}
}

func (s site) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	s.EventuallyIs(ctx, &kueue.LocalQueue{}, "queue", world.True(kueue.LocalQueueActive))
}

// complete reports whether a TrainJob is, and ends the story where it failed: that has no room for such an end.
func complete(t *trainer.TrainJob) bool {
	if failed := apimeta.FindStatusCondition(t.Status.Conditions, trainer.TrainJobFailed); failed != nil && failed.Status == metav1.ConditionTrue {
		attempt.Fail("TrainJob %s failed: %s", t.Name, failed.Message)
	}
	return apimeta.IsStatusConditionTrue(t.Status.Conditions, trainer.TrainJobComplete)
}

func runs(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}
