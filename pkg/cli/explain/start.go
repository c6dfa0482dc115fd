// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Foresight tells when jobs start that wait. All are of one cluster, which is read once.
type Foresight struct {
	client client.Client
	// namespace is that whose TrainJobs are read by those who may not read all.
	namespace string
	assume    time.Duration
	trainJobs []trainjob.TrainJob
	read      bool
	// asks is how often Start is asked: all of them share the time of a command.
	asks int
}

// NewForesight returns one that is asked so often, and takes a time for jobs of which nothing is known; zero takes none.
func NewForesight(c client.Client, namespace string, assume time.Duration, asks int) *Foresight {
	return &Foresight{client: c, namespace: namespace, assume: assume, asks: max(1, asks)}
}

// Start returns when the job of some facts starts; nil for one that does not wait for quota.
func (fs *Foresight) Start(ctx context.Context, f *Facts) (*outlook.Start, error) {
	if s := StateOf(f); s.Phase != Waiting && s.Phase != NotCreated || f.queueName() == "" || len(f.PodSets) == 0 {
		return nil, nil
	}
	o, err := fs.outlook(ctx, f)
	if err != nil {
		return nil, err
	}
	if unseen := o.Unseen(); len(unseen) > 0 {
		return &outlook.Start{Unknown: "you may not list " + strings.Join(unseen, ", ") + " in the whole cluster"}, nil
	}
	wl := f.Workload
	if wl == nil {
		with := *o.Inventory
		wl = f.wouldBe()
		with.Workloads = append(slices.Clone(with.Workloads), *wl)
		o.Inventory = &with
	}
	q, warnings := o.Question()
	q.Time /= time.Duration(fs.asks)
	start, err := outlook.Of(ctx, q, wl)
	start.Warnings = append(start.Warnings, warnings...)
	if f.KueueUnseen != "" {
		start.Warnings = append(start.Warnings, "Kueue is taken to go by its defaults; not seen: "+f.KueueUnseen)
	}
	return &start, err
}

func (fs *Foresight) outlook(ctx context.Context, f *Facts) (*outlook.Outlook, error) {
	if err := fs.readTrainJobs(ctx); err != nil {
		return nil, err
	}
	o := f.outlook()
	o.TrainJobs, o.Assume = fs.trainJobs, fs.assume
	return o, nil
}

// readTrainJobs reads all, or those of the namespace: what others tell of running times is missing then.
func (fs *Foresight) readTrainJobs(ctx context.Context) error {
	if fs.read {
		return nil
	}
	fs.read = true
	var err error
	fs.trainJobs, _, err = cluster.VisibleTrainJobs(ctx, fs.client, fs.namespace)
	return err
}

// Starts returns when each job of a snapshot starts that waits for quota, by its Workload. The futures of a part of
// the cluster answer for all that wait there, and the parts share the time of a command.
func (fs *Foresight) Starts(ctx context.Context, s *Snapshot) (map[client.ObjectKey]outlook.Start, error) {
	starts := map[client.ObjectKey]outlook.Start{}
	waiting := s.waiting()
	if len(waiting) == 0 {
		return starts, nil
	}
	o, err := fs.outlook(ctx, waiting[0])
	if err != nil || len(o.Unseen()) > 0 {
		return starts, err
	}
	q, _ := o.Question()
	parts := partsOf(q, waiting)
	for _, part := range parts {
		part.question.Time /= time.Duration(len(parts))
		answers, err := outlook.OfAll(ctx, part.question, part.waiting)
		if err != nil {
			return nil, err
		}
		maps.Copy(starts, answers)
	}
	return starts, nil
}

// waitingPart is a part of the cluster, and who waits there.
type waitingPart struct {
	question *forecast.Question
	waiting  []*kueue.Workload
}

func partsOf(q *forecast.Question, waiting []*Facts) []*waitingPart {
	var parts []*waitingPart
	byQueue := map[string]*waitingPart{}
	for _, f := range waiting {
		at := byQueue[string(f.clusterQueueName())]
		if at == nil {
			about := q.About(f.Workload)
			if about == nil {
				continue
			}
			at = &waitingPart{question: about}
			parts = append(parts, at)
			for n := range about.World.ClusterQueues {
				byQueue[about.World.ClusterQueues[n].Name] = at
			}
		}
		at.waiting = append(at.waiting, f.Workload)
	}
	return parts
}

// waiting are the jobs of a snapshot that wait for quota.
func (s *Snapshot) waiting() []*Facts {
	var all []*Facts
	for _, f := range s.Facts {
		if f.Workload != nil && StateOf(f).Phase == Waiting {
			all = append(all, f)
		}
	}
	return all
}

// StartOf returns when a TrainJob would start that has just been created, or is about to be.
func StartOf(ctx context.Context, c client.Client, job *trainjob.TrainJob, assume time.Duration) (*outlook.Start, error) {
	renderer, err := trainjob.NewRenderer(ctx, c.Scheme())
	if err != nil {
		return nil, err
	}
	reader, err := NewReader(ctx, c, renderer)
	if err != nil {
		return nil, err
	}
	facts, err := reader.preview(ctx, job, &files{namespace: job.Namespace})
	if err != nil {
		return nil, fmt.Errorf("describing TrainJob %s: %w", job.Name, err)
	}
	return NewForesight(c, job.Namespace, assume, 1).Start(ctx, facts)
}
