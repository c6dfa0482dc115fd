// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// scale measures a manager where many TrainJobs run and many more wait, and one that starts there.
func (s *site) scale(ctx context.Context, p *plan) {
	section := s.section("A large cluster: %d TrainJobs run and %d wait", p.running, p.waiting)
	memory := func(when string) {
		section.add("memory without program pages, MiB, "+when, s.used()[s.manager].anonMiB)
	}
	memory("no TrainJobs")
	s.SetQuota(ctx, s.Name("gpus"), strconv.Itoa(p.running))
	s.fill(ctx, p.running, p.running)
	memory("all run")
	s.fill(ctx, p.waiting, p.running)
	section.add(rowMemory, s.used()[s.manager].anonMiB)
	rest := s.count(ctx, func() { sleep(ctx, p.idle) })
	section.add("an hour in which nothing happens: CPU, s", rest.cpu(s.manager)/1000*3600/rest.seconds)
	section.add("the same: requests", rest.asked(managers)*3600/rest.seconds)
	s.startAgain(ctx, section)
}

// fill creates more TrainJobs, until so many run and all others wait.
func (s *site) fill(ctx context.Context, more, running int) {
	s.create(ctx, more, creators)
	s.suspended(ctx, s.made)
	s.all(ctx, running, bound)
	s.settled(ctx)
}

// startAgain starts another leader after a TrainJob has ended that nobody looked after: until the next one runs it has
// to find that out, and Kueue to admit one.
func (s *site) startAgain(ctx context.Context, section *section) {
	attempt.Succeed(s.Cluster.Control(ctx, "stop", s.manager, io.Discard))
	running := len(s.seen.times(started))
	s.finish(ctx, s.oneThatRuns(ctx))
	from := time.Now()
	attempt.Succeed(s.Cluster.Control(ctx, "start", s.manager, io.Discard))
	section.add("a new leader: to ready, s", time.Since(from).Seconds())
	s.all(ctx, running+1, started)
	section.add("to the start of the next TrainJob, s", s.seen.latestOf(started).Sub(from).Seconds())
	s.pids = attempt.Must(s.Cluster.PIDs())
	// It looks at all of them, and a look writes nothing that we would see.
	s.until(ctx, "a manager at rest", s.atRest(s.manager))
	used := s.used()[s.manager]
	section.add("CPU until it has looked at all, s", used.cpuSeconds)
	section.add("its memory without program pages, MiB", used.anonMiB)
}

// oneThatRuns selects the pods of a TrainJob.
func (s *site) oneThatRuns(ctx context.Context) client.ListOption {
	var pods corev1.PodList
	attempt.Succeed(s.List(ctx, &pods, client.InNamespace(s.Namespace), client.Limit(1)))
	return client.MatchingLabels{jobsetapi.JobSetNameKey: pods.Items[0].Labels[jobsetapi.JobSetNameKey]}
}

// atRest reports whether a component has used little CPU since it was asked before.
func (s *site) atRest(component string) func() bool {
	const share = 0.05
	var last float64
	var asked time.Time
	var rested []bool
	return func() bool {
		if time.Since(asked) < time.Second {
			return false
		}
		all := s.used()
		used, took := all[component].cpuSeconds-last, time.Since(asked).Seconds()
		last, asked = all[component].cpuSeconds, time.Now()
		rested = append(rested, used < share*took)
		return len(rested) > 5 && !slices.Contains(rested[len(rested)-5:], false)
	}
}
