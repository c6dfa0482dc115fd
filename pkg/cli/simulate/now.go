// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Advice is without whom a job would get quota at once. Its JSON is for scripts: names stay, new ones may come.
type Advice struct {
	Job string `json:"job"`
	// Starts is set where it gets quota anyway.
	Starts bool `json:"starts"`
	// Ways are the cheapest sets first; none where it would get none in an empty cluster either.
	Ways []Way `json:"ways"`
}

// Way is a set of jobs without which it would.
type Way struct {
	Without []Loss `json:"without"`
	// GPUHours is what all of them would lose.
	GPUHours float64 `json:"gpuHours"`
}

// Loss is a job and what it would lose: the GPU-hours since its start, for checkpoints are not known. One that
// waits loses its place.
type Loss struct {
	Job      string  `json:"job"`
	GPUHours float64 `json:"gpuHours"`
	Waits    bool    `json:"waits,omitempty"`
}

func (o *options) tellNow(ctx context.Context, at *outlook.Outlook) error {
	advice, err := advise(ctx, at, o.job)
	if err != nil {
		return err
	}
	switch {
	case o.output != "":
		return show.Encode(o.streams.Out, o.output, advice)
	case advice.Starts:
		fmt.Fprintf(o.streams.Out, "%s gets quota now as things are.\n", advice.Job)
		return nil
	case len(advice.Ways) == 0:
		fmt.Fprintf(o.streams.Out, "%s would get no quota even if nobody else was there: see kubectl trainjob explain.\n", advice.Job)
		return nil
	}
	table := show.NewTable("WAY", "WITHOUT", "LOSES", "IN ALL")
	for n, way := range advice.Ways {
		sum := fmt.Sprintf("%.1f GPU-hours", way.GPUHours)
		for _, loss := range way.Without {
			loses := fmt.Sprintf("%.1f GPU-hours since its start", loss.GPUHours)
			if loss.Waits {
				loses = "its place in the queue"
			}
			table.Row(n+1, loss.Job, loses, sum)
			sum = "" // Of a way, once.
		}
	}
	fmt.Fprintf(o.streams.Out, "%s would get quota now without these; nothing is changed by this command:\n\n", advice.Job)
	return table.Print(o.streams.Out, show.Painter(o.streams.Out))
}

func advise(ctx context.Context, at *outlook.Outlook, job string) (Advice, error) {
	advice := Advice{Job: job, Ways: []Way{}}
	target, err := waiting(at, job)
	if err != nil {
		return advice, err
	}
	at.NoArrivals = true
	q, _ := at.Question()
	if q = q.About(target); q == nil {
		return advice, fmt.Errorf("the queue of %s leads to no ClusterQueue", job)
	}
	for _, e := range q.Entrants {
		if e.Workload.UID == target.UID && e.Arrives.After(at.Now) {
			return advice, fmt.Errorf("%s is to be tried again in %s: ask then", job, e.Arrives.Sub(at.Now).Round(time.Second))
		}
	}
	s := &search{question: q, target: client.ObjectKeyFromObject(target), now: at.Now}
	if advice.Starts, err = s.starts(ctx, nil); err != nil || advice.Starts {
		return advice, err
	}
	// By what they lose, by how much they free for it, and the latest first: the sets differ.
	for _, cost := range []func(candidate) float64{
		func(c candidate) float64 { return c.GPUHours },
		func(c candidate) float64 { return c.GPUHours / float64(max(1, c.gpus)) },
		func(c candidate) float64 { return -float64(c.gpus) },
	} {
		way, err := s.way(ctx, cost)
		if err != nil {
			return advice, err
		}
		if way != nil && !slices.ContainsFunc(advice.Ways, func(w Way) bool { return slices.Equal(w.Without, way.Without) }) {
			advice.Ways = append(advice.Ways, *way)
		}
	}
	if err := s.alone(ctx, &advice); err != nil {
		return advice, err
	}
	slices.SortStableFunc(advice.Ways, func(a, b Way) int { return cmp.Compare(a.GPUHours, b.GPUHours) })
	return advice, nil
}

func waiting(at *outlook.Outlook, job string) (*kueue.Workload, error) {
	for n := range at.Workloads {
		wl := &at.Workloads[n]
		if inventory.JobName(wl) != job || kueuelib.IsFinished(wl) {
			continue
		}
		if kueuelib.HasQuotaReservation(wl) {
			return nil, fmt.Errorf("%s does not wait: it has quota", job)
		}
		if queue, held := trainjob.HeldFrom(string(wl.Spec.QueueName)); held {
			return nil, fmt.Errorf("%s is held out of queue %s: resume it first", job, queue)
		}
		return wl, nil
	}
	return nil, fmt.Errorf("there is no Workload of a job %s that waits: write it as NAMESPACE/JOB", job)
}

type search struct {
	question *forecast.Question
	target   client.ObjectKey
	now      time.Time
}

type candidate struct {
	Loss
	key  client.ObjectKey
	gpus int64
}

// starts reports whether the target starts at once without some. Those whom it would preempt do not stop so soon.
func (s *search) starts(ctx context.Context, without []candidate) (bool, error) {
	q := *s.question
	q.Entrants = slices.DeleteFunc(slices.Clone(q.Entrants), func(e forecast.Entrant) bool {
		return slices.ContainsFunc(without, func(c candidate) bool { return c.key == client.ObjectKeyFromObject(e.Workload) })
	})
	q.Horizon, q.Stopping, q.Checks = 0, time.Hour, 0
	started := false
	err := forecast.Play(ctx, q.World, q.Jobs(0), q.Settings, func(e forecast.Event) {
		started = started || e.Kind == forecast.Started && e.Job == s.target
	})
	return started, err
}

// alone adds the cheapest that suffices by itself and is cheaper than what was found: sets that are grown and then
// shrunk may not come by it.
func (s *search) alone(ctx context.Context, advice *Advice) error {
	const most = 50 // Each is a play.
	all := slices.DeleteFunc(s.candidates(), func(c candidate) bool {
		return c.Waits || slices.ContainsFunc(advice.Ways, func(w Way) bool { return w.GPUHours <= c.GPUHours })
	})
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.GPUHours, b.GPUHours) })
	for n := range all[:min(len(all), most)] {
		starts, err := s.starts(ctx, all[n:n+1])
		if err != nil {
			return err
		}
		if starts {
			advice.Ways = append(advice.Ways, Way{Without: []Loss{all[n].Loss}, GPUHours: all[n].GPUHours})
			return nil
		}
	}
	return nil
}

// way takes as many as it needs, the cheapest first, and puts back whom it does not need; nil where all are too few.
func (s *search) way(ctx context.Context, cost func(candidate) float64) (*Way, error) {
	all := s.candidates()
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(cost(a), cost(b)) })
	var failed error
	enough := sort.Search(len(all)+1, func(n int) bool {
		starts, err := s.starts(ctx, all[:n])
		failed = errors.Join(failed, err)
		return starts
	})
	if failed != nil || enough > len(all) {
		return nil, failed
	}
	set := slices.Clone(all[:enough])
	slices.SortFunc(set, func(a, b candidate) int { // One set that is found twice is the same in both.
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(a.Job, b.Job))
	})
	for n := 0; n < len(set); {
		fewer := slices.Delete(slices.Clone(set), n, n+1)
		starts, err := s.starts(ctx, fewer)
		if err != nil {
			return nil, err
		}
		if starts {
			set = fewer
		} else {
			n++
		}
	}
	way := &Way{}
	for _, c := range set {
		way.Without = append(way.Without, c.Loss)
		way.GPUHours += c.GPUHours
	}
	return way, nil
}

func (s *search) candidates() []candidate {
	var all []candidate
	for _, e := range s.question.Entrants {
		c := candidate{Loss: Loss{Job: inventory.JobName(e.Workload), Waits: true}, key: client.ObjectKeyFromObject(e.Workload), gpus: outlook.GPUs(e.Workload)}
		if c.key == s.target {
			continue
		}
		if kueuelib.HasQuotaReservation(e.Workload) {
			c.Waits = false
			c.GPUHours = float64(c.gpus) * s.now.Sub(runsSince(e.Workload, s.now)).Hours()
		}
		all = append(all, c)
	}
	return all
}
