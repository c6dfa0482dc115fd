// SPDX-License-Identifier: Apache-2.0

package forecast_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func (s *scene) play(t *testing.T) []string {
	t.Helper()
	var lines []string
	expect.NoError(t, forecast.Play(t.Context(), s.World, s.jobs, s.settings, func(e forecast.Event) { lines = append(lines, line(e)) }))
	return lines
}

func TestPlay(t *testing.T) {
	// preempted is what becomes of who does not come back.
	preempted := []string{"1h0m0s high Queued", "1h0m0s low Preempted", "1h0m0s low Ended", "1h0m0s high Started"}
	// first runs for an hour in a queue of its size, and second waits.
	queued := func(s *scene) {
		s.queue("a", "", 4)
		s.running("first", "a", 4, 0, time.Hour)
		s.job("second", "a", 4, 0, time.Hour)
	}
	// low runs, and high comes after an hour and preempts it.
	preempts := func(runs, high time.Duration, change func(low *forecast.Job)) func(*scene) {
		return func(s *scene) {
			s.queue("a", "", 4, preempting)
			change(s.running("low", "a", 4, 0, runs))
			s.arriving(time.Hour, "high", "a", 4, 10, high)
		}
	}
	stopping := func(s *scene) { s.settings.Stopping = 30 * time.Second }
	as := func(set ...func(*scene)) []func(*scene) { return set }
	expect.Rows(t, map[string]expect.Row[[]func(*scene), []string]{
		"who waits starts when who runs ends": {In: as(queued), Want: []string{"1h0m0s first Ended", "1h0m1s second Started", "2h0m1s second Ended"}},
		"who comes later waits behind who is there": {In: as(queued, func(s *scene) { s.arriving(30*time.Minute, "third", "a", 4, 0, 0) }),
			Want: []string{"30m0s third Queued", "1h0m0s first Ended", "1h0m1s second Started", "2h0m1s second Ended", "2h0m2s third Started"}},
		"who is preempted stops first, and starts again from its beginning": {
			In: as(stopping, preempts(2*time.Hour, time.Hour, func(low *forecast.Job) { low.Again = 3 * time.Hour })), Want: []string{
				"1h0m0s high Queued", "1h0m0s low Preempted", "1h0m30s low Queued", "1h0m30s high Started",
				"2h0m30s high Ended", "2h0m31s low Started", "5h0m31s low Ended",
			}},
		"a time limit counts what it ran before it was preempted": {
			In: as(preempts(3*time.Hour, time.Hour, func(low *forecast.Job) {
				low.Again, low.Workload.Spec.MaximumExecutionTimeSeconds = 4*time.Hour, ptr.To[int32](4*3600)
			}), func(s *scene) { s.arriving(3*time.Hour, "higher", "a", 4, 20, time.Hour) }),
			// Of four hours, one is over at the begin, and there is another one in each of its runs but the last.
			Want: []string{
				"1h0m0s high Queued", "1h0m0s low Preempted", "1h0m0s low Queued", "1h0m0s high Started", "2h0m0s high Ended", "2h0m1s low Started",
				"3h0m0s higher Queued", "3h0m0s low Preempted", "3h0m0s low Queued", "3h0m0s higher Started", "4h0m0s higher Ended", "4h0m1s low Started", "5h0m2s low Ended",
			}},
		"who ends before its pods are stopped does not start again": {In: as(stopping, preempts(time.Hour+10*time.Second, 0, func(*forecast.Job) {})),
			Want: []string{"1h0m0s high Queued", "1h0m0s low Preempted", "1h0m10s low Ended", "1h0m10s high Started"}},
		"who is evicted and to be tried again later holds its quota until it has stopped, and queues then": {In: as(stopping, func(s *scene) {
			s.queue("a", "", 4)
			evicted := s.running("evicted", "a", 4, 0, time.Hour)
			kit.Says(kit.True(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPodsReadyTimeout))(evicted.Workload)
			evicted.Arrives, evicted.Again = begin.Add(10*time.Minute), time.Hour
			s.job("next", "a", 4, 0, 20*time.Minute)
			s.job("last", "a", 4, -1, 0)
		}), Want: []string{"31s next Started", "10m0s evicted Queued", "20m31s next Ended", "20m32s evicted Started", "1h20m32s evicted Ended", "1h20m33s last Started"}},
		"a share is given back by preemption": {In: as(func(s *scene) {
			s.queue("a", "all", 4, preempting).queue("b", "all", 4, preempting)
			s.running("borrower", "b", 8, 0, 10*time.Hour)
			s.arriving(time.Hour, "owner", "a", 4, 0, 0)
		}), Want: []string{"1h0m0s owner Queued", "1h0m0s borrower Preempted", "1h0m0s borrower Queued", "1h0m0s owner Started"}},
		"admission checks take their time": {In: as(func(s *scene) {
			s.settings.Checks = 5 * time.Minute
			s.AdmissionChecks = []kueue.AdmissionCheck{{
				ObjectMeta: metav1.ObjectMeta{Name: "capacity"}, Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{kit.True(kueue.AdmissionCheckActive, "")}},
			}}
			s.queue("a", "", 4, func(spec *kueue.ClusterQueueSpec) { spec.AdmissionChecksStrategy = kit.Checks("capacity") })
			s.job("one", "a", 4, 0, time.Hour)
		}), Want: []string{"5m0s one Started", "1h5m0s one Ended"}},
		"who has to be placed on nodes that are made for it gets them": {In: as(func(s *scene) {
			s.settings.Checks = 5 * time.Minute
			s.Flavors[0].Spec.NodeLabels, s.Flavors[0].Spec.TopologyName = map[string]string{"pool": pool}, ptr.To[kueue.TopologyReference]("racks")
			s.Topologies = []kueue.Topology{*kit.Topology("racks", "rack")}
			s.AdmissionChecks = []kueue.AdmissionCheck{{
				ObjectMeta: metav1.ObjectMeta{Name: "capacity"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.ProvisioningRequestControllerName},
				Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{kit.True(kueue.AdmissionCheckActive, "")}},
			}}
			s.queue("a", "", 4, func(spec *kueue.ClusterQueueSpec) { spec.AdmissionChecksStrategy = kit.Checks("capacity") })
			s.job("one", "a", 4, 0, time.Hour)
			s.job("two", "a", 4, 0, time.Hour)
		}), Want: []string{"10m0s one Started", "1h10m0s one Ended", "1h20m1s two Started", "2h20m1s two Ended"}},
		"who was deactivated holds its quota until it has stopped, and is gone": {In: as(stopping, func(s *scene) {
			s.queue("a", "", 4, preempting)
			kit.Deactivated(s.running("off", "a", 4, 0, 0).Workload)
			s.job("next", "a", 4, 0, 0)
		}), Want: []string{"30s off Ended", "31s next Started"}},
		"who is preempted and has no queue to come back to is gone": {
			In: as(preempts(0, 0, func(low *forecast.Job) { low.Workload.Spec.QueueName = "deleted" })), Want: preempted},
		"who is preempted from a queue that is stopped is gone": {In: as(preempts(0, 0, func(low *forecast.Job) { low.Workload.Spec.QueueName = "stopped" }), func(s *scene) {
			s.queue("stopped", "", 4)
			s.LocalQueues[1].Spec.StopPolicy = ptr.To(kueue.Hold)
		}), Want: preempted},
		"whom Kueue takes nowhere is left out": {In: as(func(s *scene) {
			s.queue("a", "", 4)
			s.job("lost", "nowhere", 4, 0, 0)
			s.running("gone", "a", 4, 0, 0).Workload.Status.Admission.ClusterQueue = "deleted"
			s.arriving(time.Hour, "late", "nowhere", 4, 0, 0)
			s.job("mine", "a", 4, 0, 0)
		}), Want: []string{"0s lost LeftOut", "0s gone LeftOut", "0s mine Started", "1h0m0s late LeftOut"}},
		"who is larger than its queue never starts, and the play ends": {In: as(func(s *scene) { s.queue("a", "", 4).job("large", "a", 8, 0, time.Hour) })},
		"what is beyond the horizon is not told":                       {In: as(queued, func(s *scene) { s.settings.Horizon = time.Hour / 2 })},
	}, func(t *testing.T, tc expect.Row[[]func(*scene), []string]) {
		expect.Same(t, "Unexpected events", tc.Want, kit.With(newScene(), tc.In...).play(t))
	})
}

// crowd is many jobs of random size, priority and length in a cohort where all may preempt.
func crowd(seed uint64, jobs int) *scene {
	r := rand.New(rand.NewPCG(seed, 0))
	s := newScene()
	for q := range 8 {
		s.queue(fmt.Sprintf("team-%d", q), "all", 16, preempting)
	}
	for n := range jobs {
		s.arriving(time.Duration(r.IntN(jobs))*time.Minute+time.Duration(n), fmt.Sprintf("job-%05d", n), fmt.Sprintf("team-%d", r.IntN(8)),
			1+int32(r.ExpFloat64()*2), int32(r.IntN(3)), time.Duration(r.ExpFloat64()*float64(55*time.Minute)))
	}
	return s
}

func TestPlayIsTheSameAgain(t *testing.T) {
	first := crowd(1, 250).play(t)
	expect.Need(t, len(first) > 760, "a crowd has starts, ends and preemptions: %d", len(first))
	expect.Same(t, "Another play of the same", first, crowd(1, 250).play(t))
}

func TestPlayIsTheSameAgainOfOneSecond(t *testing.T) {
	for range 20 {
		s := newScene().queue("lender", "all", 4).queue("b", "all", 0).queue("a", "all", 0)
		for _, name := range []string{"a", "b"} {
			s.job("of-"+name, name, 4, 0, 0).Workload.CreationTimestamp = metav1.NewTime(begin)
		}
		expect.Same(t, "Unexpected events", []string{"0s of-a Started"}, s.play(t))
	}
}

func TestPlayTellsOfPanics(t *testing.T) {
	s := newScene()
	s.jobs = append(s.jobs, forecast.Job{})
	err := forecast.Play(t.Context(), s.World, s.jobs, s.settings, func(forecast.Event) {})
	expect.That(t, err != nil, "a panic is an error")
}

func TestAbout(t *testing.T) {
	s := newScene()
	s.queue("a", "left", 4).queue("b", "left", 4).queue("c", "right", 4).queue("alone", "", 4)
	s.Cohorts = []kueue.Cohort{{ObjectMeta: metav1.ObjectMeta{Name: "right"}, Spec: kueue.CohortSpec{ParentName: "left"}}}
	s.Flavors = append(s.Flavors, kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "racked"}, Spec: kueue.ResourceFlavorSpec{TopologyName: new(kueue.TopologyReference)}})
	racked := func(spec *kueue.ClusterQueueSpec) { spec.ResourceGroups[0].Flavors[0].Name = "racked" }
	s.queue("x", "", 4, racked).queue("y", "", 4, racked)
	s.job("one", "c", 1, 0, 0)
	s.job("two", "a", 1, 0, 0)
	s.job("three", "y", 1, 0, 0)
	s.job("lost", "nowhere", 1, 0, 0)
	q := &forecast.Question{World: s.World}
	for _, job := range s.jobs {
		q.Entrants = append(q.Entrants, forecast.Entrant{Workload: job.Workload})
	}
	got := expect.Each(s.jobs, func(job forecast.Job) string {
		part := q.About(job.Workload)
		if part == nil {
			return "nothing"
		}
		queues := expect.Each(part.World.ClusterQueues, func(cq kueue.ClusterQueue) string { return cq.Name })
		return fmt.Sprintf("%s with %d", queues, len(part.Entrants))
	})
	expect.Same(t, "Unexpected parts", []string{"[a b c] with 2", "[a b c] with 2", "[x y] with 1", "nothing"}, got)
}
