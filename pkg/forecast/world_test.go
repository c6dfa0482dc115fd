// SPDX-License-Identifier: Apache-2.0

package forecast_test

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

const pool = "h100"

var begin = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// scene is a world with one flavor and its jobs.
type scene struct {
	*scheduler.World
	jobs     []forecast.Job
	settings forecast.Settings
}

func newScene() *scene {
	return &scene{
		World:    &scheduler.World{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: pool}}}},
		settings: forecast.Settings{Begin: begin, Horizon: 14 * 24 * time.Hour},
	}
}

func (s *scene) queue(name, cohort string, gpus int, changes ...func(*kueue.ClusterQueueSpec)) *scene {
	cq := kit.ClusterQueue(name, kit.Quota{Flavor: pool, GPUs: strconv.Itoa(gpus)})
	cq.Spec.CohortName, cq.Spec.QueueingStrategy = kueue.CohortReference(cohort), kueue.BestEffortFIFO
	cq.Spec.Preemption, cq.Spec.FlavorFungibility = nil, nil
	kit.With(&cq.Spec, changes...)
	s.ClusterQueues = append(s.ClusterQueues, *cq)
	s.LocalQueues = append(s.LocalQueues, *kit.LocalQueue("team", name, name))
	return s
}

func preempting(spec *kueue.ClusterQueueSpec) {
	spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny}
}

// job adds a job of pods with a GPU each that waits; it has come one second after the one before.
func (s *scene) job(name, queue string, pods, priority int32, runs time.Duration) *forecast.Job {
	wl := kit.Workload("team", name, queue, begin.Add(time.Duration(len(s.jobs)-1000)*time.Second), kit.PodSet("node", pods, "nvidia.com/gpu", "1"))
	wl.Spec.Priority = &priority
	s.jobs = append(s.jobs, forecast.Job{Workload: wl, Runs: runs})
	return &s.jobs[len(s.jobs)-1]
}

// running adds one that has run for an hour.
func (s *scene) running(name, queue string, pods, priority int32, runs time.Duration) *forecast.Job {
	j := s.job(name, queue, pods, priority, runs)
	kit.Runs(queue, pool, begin.Add(-time.Hour))(j.Workload)
	return j
}

func (s *scene) arriving(after time.Duration, name, queue string, pods, priority int32, runs time.Duration) *forecast.Job {
	j := s.job(name, queue, pods, priority, runs)
	j.Arrives = begin.Add(after)
	j.Workload.CreationTimestamp = metav1.NewTime(j.Arrives)
	return j
}

func line(e forecast.Event) string {
	return fmt.Sprintf("%s %s %s", e.At.Sub(begin), e.Job.Name, e.Kind)
}
