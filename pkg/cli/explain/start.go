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
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// foresight tells when jobs start that wait. All are of one cluster, whose TrainJobs are read once.
type foresight struct {
	client client.Client
	// namespace is whose TrainJobs tell of running times where the user may not list all.
	namespace string
	told      outlook.Told
	// asks is how often it is asked: all of them share the time of a command.
	asks int

	trainJobs []trainjob.TrainJob
	read      bool
}

// start returns when the job of some facts starts, or only gets quota; nil for one that does not wait for that. What keeps
// it until somebody acts is not all in the play.
func (fs *foresight) start(ctx context.Context, f *Facts) (*outlook.Start, error) {
	s, warned := StateOf(f), warnedOf(Flavors(f))
	switch {
	case s.Phase != Waiting && s.Phase != NotCreated || f.queueName() == "" || len(f.PodSets) == 0:
		return nil, nil
	case s.Stuck && (warned == nil || s.Reason != warned.Reason):
		return &outlook.Start{Never: true}, nil
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
	start.QuotaOnly = warned != nil
	start.Warnings = append(start.Warnings, warnings...)
	if f.KueueUnseen != "" {
		start.Warnings = append(start.Warnings, "Kueue is taken to go by its defaults; not seen: "+f.KueueUnseen)
	}
	return &start, err
}

func (fs *foresight) outlook(ctx context.Context, f *Facts) (*outlook.Outlook, error) {
	if !fs.read {
		var err error
		if fs.trainJobs, _, err = cluster.VisibleTrainJobs(ctx, fs.client, fs.namespace); err != nil {
			return nil, err
		}
		fs.read = true
	}
	o := f.outlook()
	o.TrainJobs, o.Told = fs.trainJobs, fs.told
	return o, nil
}

// Starts returns when each job of a snapshot starts that waits for quota, by its Workload, and by what is told of running
// times. The futures of a part of the cluster answer for all that wait there, and the parts share the time of a command.
func Starts(ctx context.Context, c client.Client, s *Snapshot, namespace string, told outlook.Told) (map[client.ObjectKey]outlook.Start, error) {
	starts := map[client.ObjectKey]outlook.Start{}
	waiting := picked(s.Facts, func(f *Facts) bool {
		state := StateOf(f)
		return f.Workload != nil && state.Phase == Waiting && state.Reason != KueueRefuses
	})
	if len(waiting) == 0 {
		return starts, nil
	}
	o, err := (&foresight{client: c, namespace: namespace, told: told}).outlook(ctx, waiting[0])
	if err != nil || len(o.Unseen()) > 0 {
		return starts, err
	}
	q, _ := o.Question()
	parts := partsOf(q, waiting)
	for _, part := range parts {
		part.Time /= time.Duration(len(parts))
		answers, err := outlook.OfAll(ctx, part.Question, part.waiting)
		if err != nil {
			return nil, err
		}
		maps.Copy(starts, answers)
	}
	return starts, nil
}

// waitingPart is a part of the cluster, and who waits there.
type waitingPart struct {
	*forecast.Question
	waiting []*kueue.Workload
}

func partsOf(q *forecast.Question, waiting []*Facts) []*waitingPart {
	var parts []*waitingPart
	for _, f := range waiting {
		at := slices.IndexFunc(parts, func(p *waitingPart) bool {
			return inventory.Find(p.World.ClusterQueues, "", string(f.clusterQueueName())) != nil
		})
		if at < 0 {
			about := q.About(f.Workload)
			if about == nil {
				continue
			}
			at = len(parts)
			parts = append(parts, &waitingPart{Question: about})
		}
		parts[at].waiting = append(parts[at].waiting, f.Workload)
	}
	return parts
}

// StartOf returns when a TrainJob would start that has just been created, or is about to be; one that is in no queue, or cannot
// be described, has that told as why it is unknown.
func StartOf(ctx context.Context, c client.Client, job *trainjob.TrainJob, told outlook.Told) (*outlook.Start, error) {
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
	facts.Replaces = false
	start, err := (&foresight{client: c, namespace: job.Namespace, told: told, asks: 1}).start(ctx, facts)
	if start == nil && err == nil {
		start = &outlook.Start{Unknown: "it " + StateOf(facts).Message}
	}
	return start, err
}
