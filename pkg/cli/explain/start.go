// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// foresight tells when jobs start that wait. All are of one cluster, whose TrainJobs are read once.
type foresight struct {
	told outlook.Told
	// asks is how often it is asked: all of them share the time of a command.
	asks      int
	trainJobs func() ([]trainjob.TrainJob, error)
}

// newForesight goes by the running times of all TrainJobs or, where the user may not list all, by those of a namespace.
func newForesight(ctx context.Context, c client.Client, namespace string, told outlook.Told, asks int) *foresight {
	return &foresight{told, asks, sync.OnceValues(func() ([]trainjob.TrainJob, error) {
		jobs, _, err := cluster.VisibleTrainJobs(ctx, c, namespace)
		return jobs, err
	})}
}

// foretold is what is known of a start without a play. The job waits for quota, and for nothing that people have to do first,
// where it has to be played: what keeps it until somebody acts is not all in the play.
func (f *Facts) foretold() (start *outlook.Start, plays bool) {
	s := StateOf(f)
	switch {
	case s.Phase != Waiting && s.Phase != NotCreated || f.queueName() == "" || len(f.PodSets) == 0:
		return nil, false
	case s.Reason == KueueRefuses && !s.Stuck:
		return &outlook.Start{Unknown: "Kueue goes by more than what is seen here"}, false
	case s.Stuck:
		if warned := warnedOf(Flavors(f)); warned == nil || s.Reason != warned.Reason {
			return &outlook.Start{Never: true}, false
		}
	}
	return nil, true
}

// starts returns when jobs start, or only get quota; nothing of those that do not wait for that.
func (fs *foresight) starts(ctx context.Context, jobs ...*Facts) (map[*Facts]*outlook.Start, error) {
	starts := map[*Facts]*outlook.Start{}
	var played []*Facts
	for _, f := range jobs {
		start, plays := f.foretold()
		if plays {
			played = append(played, f)
		} else if start != nil {
			starts[f] = start
		}
	}
	if len(played) == 0 {
		return starts, nil
	}
	o := played[0].outlook()
	var err error
	if o.TrainJobs, err = fs.trainJobs(); err != nil {
		return starts, err
	}
	o.Told = fs.told
	if unseen := o.Unseen(); len(unseen) > 0 {
		for _, f := range played {
			starts[f] = &outlook.Start{Unknown: "you may not list " + strings.Join(unseen, ", ") + " in the whole cluster"}
		}
		return starts, nil
	}
	q, warnings := o.Question()
	if played[0].KueueUnseen != "" {
		warnings = append(warnings, "Kueue is taken to go by its defaults; not seen: "+played[0].KueueUnseen)
	}
	q.Time /= time.Duration(fs.asks)
	var waiting []*kueue.Workload
	for _, f := range played {
		waiting = append(waiting, f.workload())
	}
	answers, err := outlook.Of(ctx, q, waiting...)
	for n, f := range played {
		if start := answers[client.ObjectKeyFromObject(waiting[n])]; start != nil {
			start.QuotaOnly = warnedOf(Flavors(f)) != nil
			start.Warnings = append(start.Warnings, warnings...)
			starts[f] = start
		}
	}
	return starts, err
}

// Starts returns when each job of a snapshot starts that waits for quota, by what is told of running times.
func Starts(ctx context.Context, c client.Client, s *Snapshot, namespace string, told outlook.Told) (map[*Facts]*outlook.Start, error) {
	return newForesight(ctx, c, namespace, told, 1).starts(ctx, s.Facts...)
}

// StartOf returns when a TrainJob would start that has just been created, or is about to be; one that is in no queue, or cannot
// be described, has that told as why it is unknown.
func StartOf(ctx context.Context, c client.Client, job *trainjob.TrainJob, told outlook.Told) (*outlook.Start, error) {
	renderer, err := trainjob.NewRenderer(ctx, c.Scheme())
	if err != nil {
		return nil, err
	}
	previews, err := newPreviews(ctx, c, renderer, &files{namespace: job.Namespace})
	if err != nil {
		return nil, err
	}
	facts, err := previews.of(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("describing TrainJob %s: %w", job.Name, err)
	}
	facts.Replaces = false
	starts, err := newForesight(ctx, c, job.Namespace, told, 1).starts(ctx, facts)
	if err != nil {
		return nil, err
	}
	return cmp.Or(starts[facts], &outlook.Start{Unknown: "it " + StateOf(facts).Message}), nil
}
