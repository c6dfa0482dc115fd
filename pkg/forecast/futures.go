// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Entrant is a Workload that runs or waits, and what is known of how long it runs.
type Entrant struct {
	Workload *kueue.Workload
	Running  Running
	// Arrives is when it queues; zero for one that is there.
	Arrives time.Time
}

// Arrival is a Workload like which others may come: one in each time as long as that in which it came.
type Arrival struct {
	Entrant
	Within time.Duration
}

// Question is what is asked of the future.
type Question struct {
	World *scheduler.World
	// Entrants are in the order of their submits.
	Entrants []Entrant
	// Runtimes are what is known of running times.
	Runtimes *Runtimes
	// Arrivals may be none.
	Arrivals []Arrival
	Settings
	// Futures is how many are drawn; fewer where the time is over before, or none.
	Futures int
	// Time is how long is drawn for; zero without an end. What is being played then is dropped.
	Time time.Duration
	Seed uint64
}

// Start is that of a Workload in one future, after Begin.
type Start struct {
	In time.Duration
	// After is the job whose end or stop was the last before it; empty where nobody's was.
	After client.ObjectKey
}

// Futures are what came of a Question: for each Workload that waits its first starts, one for
// each future in which it starts before the horizon.
type Futures struct {
	Drawn int
	// LeftOut are those whom Kueue takes nowhere, in the future with the most.
	LeftOut int
	Starts  map[client.ObjectKey][]Start
}

// Draw plays futures side by side, each with running times and arrivals of its own.
func Draw(ctx context.Context, q *Question) (*Futures, error) {
	f := &Futures{Starts: map[client.ObjectKey][]Start{}}
	within, cancel := context.WithTimeout(ctx, cmp.Or(q.Time, forever))
	defer cancel()
	var mu sync.Mutex
	group, within := errgroup.WithContext(within)
	group.SetLimit(min(runtime.GOMAXPROCS(0), most))
	for n := 0; n < q.Futures && within.Err() == nil; n++ {
		group.Go(func() error {
			starts, leftOut, err := q.play(within, uint64(n+1))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			f.Drawn++
			f.LeftOut = max(f.LeftOut, leftOut)
			for key, start := range starts {
				f.Starts[key] = append(f.Starts[key], start)
			}
			return nil
		})
	}
	err := cmp.Or(group.Wait(), ctx.Err())
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil // The time was over, and what is there is the answer.
	}
	for _, starts := range f.Starts {
		// Workers end in any order.
		slices.SortFunc(starts, func(a, b Start) int {
			return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.After.String(), b.After.String()))
		})
	}
	return f, err
}

// most is how many futures are played beside each other at most: each has a whole cluster in memory.
const most = 4

const forever = time.Duration(math.MaxInt64)

// play plays one future, and returns the first start of each who waits, and how many take no part.
func (q *Question) play(ctx context.Context, future uint64) (starts map[client.ObjectKey]Start, leftOut int, err error) {
	starts = map[client.ObjectKey]Start{}
	err = Play(ctx, q.World, q.Jobs(future), q.Settings, func(e Event) {
		if _, again := starts[e.Job]; e.Kind == Started && !again {
			starts[e.Job] = Start{In: e.At.Sub(q.Begin), After: e.After}
		}
		if e.Kind == LeftOut {
			leftOut++
		}
	})
	return starts, leftOut, err
}

// Alone returns those of some who wait that start where nobody else is there; where a quarter of Time does not suffice
// for all, the others as well.
func (q *Question) Alone(ctx context.Context, some map[client.ObjectKey]bool) (starts map[client.ObjectKey]bool, err error) {
	defer recovered(&err)
	within, cancel := context.WithTimeout(ctx, cmp.Or(q.Time/4, forever))
	defer cancel()
	starts = map[client.ObjectKey]bool{}
	p, err := newPlay(within, q.World, q.Settings, func(e Event) { starts[e.Job] = starts[e.Job] || e.Kind == Started })
	if err != nil {
		return nil, err
	}
	for n := range q.Entrants {
		key := client.ObjectKeyFromObject(q.Entrants[n].Workload)
		if !some[key] {
			continue
		}
		switch err := p.alone(within, q.Entrants[n].Workload); {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			starts[key] = true
		case err != nil:
			return nil, err
		}
	}
	return starts, nil
}

// Jobs returns those of one future.
func (q *Question) Jobs(future uint64) []Job {
	draws := NewDraws(q.Runtimes, q.Seed, future)
	jobs := kueuelib.Map(q.Entrants, func(e *Entrant) Job {
		runs := draws.Rest(e.Running)
		return Job{Workload: e.Workload, Arrives: e.Arrives, Runs: runs, Again: e.Running.again(runs)}
	})
	return append(jobs, q.arriving(draws)...)
}

func (q *Question) arriving(draws *Draws) []Job {
	if len(q.Arrivals) == 0 {
		return nil
	}
	var jobs []Job
	often, sum := make([]float64, len(q.Arrivals)), 0.0
	for n := range q.Arrivals {
		sum += 1 / float64(q.Arrivals[n].Within)
		often[n] = sum
	}
	at := q.Begin
	for {
		at = at.Add(time.Duration(draws.random.ExpFloat64()/sum) + 1)
		if at.After(q.Begin.Add(q.Horizon)) {
			return jobs
		}
		n, _ := slices.BinarySearch(often, draws.random.Float64()*sum)
		e := &q.Arrivals[n]
		runs := draws.Rest(e.Running.another(at))
		jobs = append(jobs, Job{Workload: comes(e.Workload, len(jobs), at), Arrives: at, Runs: runs, Again: runs})
	}
}

func comes(like *kueue.Workload, serial int, at time.Time) *kueue.Workload {
	name := fmt.Sprintf("arrival-%06d", serial)
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: like.Namespace, Name: name, UID: types.UID(name), Labels: like.Labels, Annotations: like.Annotations,
			CreationTimestamp: metav1.NewTime(at),
		},
		Spec: like.Spec,
	}
}
