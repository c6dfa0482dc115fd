// SPDX-License-Identifier: Apache-2.0

package starts

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestHoldBackCountsFromTheEndOfTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		field := patch.Of(trainjob.Trainer23)
		job, s := inttest.Job("uid"), &Record{}
		s.QuotaGoes("wl")
		expect.Same(t, "Unexpected wait of a job that was evicted", 0, s.HeldBack(job, field))
		s.HoldBack("wl", job, field, 2*time.Minute)
		// Its last pod takes longer to end than the job is held back.
		time.Sleep(10 * time.Minute)
		s.QuotaGoes("wl")
		expect.Same(t, "Unexpected time that it is held back after its quota was given back", time.Minute, s.HeldBack(job, field))
		time.Sleep(time.Minute)
		s.QuotaGoes("admitted again")
		expect.Same(t, "Unexpected wait of a job that was preempted before it started", 0, s.HeldBack(job, field))
	})
}

// Kueue admits the same Workload again: what it lacked before counts no more, nor that it was complete.
func TestLacksBeginsWithEachAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(seconds int64) Admission {
			return AdmissionOf(inttest.AdmittedOf("a", kit.Since(time.Unix(seconds, 0))))
		}
		s, first, second := &Record{}, at(1), at(2)
		s.Lacks(first, time.Minute, 0)
		time.Sleep(time.Hour)
		lacking, wait, complete := s.Lacks(first, time.Minute, 0)
		expect.That(t, lacking == time.Hour && wait == 0 && !complete, "In the first admission: lacking %s, wait %s, complete %t", lacking, wait, complete)
		lacking, wait, _ = s.Lacks(second, time.Minute, 0)
		expect.That(t, lacking == 0 && wait == time.Minute, "In the second one: lacking %s, wait %s", lacking, wait)
		s.LacksNothing(second)
		_, _, complete = s.Lacks(second, time.Minute, 0)
		expect.That(t, complete, "That it was complete is forgotten")
		_, _, complete = s.Lacks(at(3), time.Minute, 0)
		expect.That(t, !complete, "It is complete before it has started again")
	})
}

// The Job controller makes pods one by one, also when JobSet has made the Jobs again.
func TestLacksBeginsAnewWithFewerPodsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Record{}
		for _, look := range []struct {
			missing int32
			want    time.Duration
		}{{10, 0}, {3, 0}, {4, time.Minute}, {3, 2 * time.Minute}, {0, 3 * time.Minute}, {10, 4 * time.Minute}, {9, 0}} {
			lacking, _, _ := s.Lacks(Admission{"wl", 1}, time.Hour, look.missing)
			expect.Same(t, fmt.Sprintf("Unexpected time without %d pods", look.missing), look.want, lacking)
			time.Sleep(time.Minute)
		}
	})
}

func TestHoldBack(t *testing.T) {
	field := patch.Of(trainjob.Trainer23)
	job, s := inttest.Job("uid"), &Record{}
	expect.Same(t, "Unexpected wait of a job that never started", 0, s.HeldBack(job, field))
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		expect.Same(t, fmt.Sprintf("%d: unexpected time that it is held back", i), want, s.HoldBack("wl", job, field, 2*time.Minute))
	}
	for range 10 {
		s.HoldBack("wl", job, field, 2*time.Minute)
	}
	wait := s.HeldBack(job, field)
	expect.That(t, wait <= time.Hour && wait >= 59*time.Minute, "held back for %s, want an hour at the most", wait)
	ours := *job.DeepCopy()
	field.Set(&ours.Spec, []patch.Placement{patch.Gated("node")})
	ours.Spec.Suspend = new(true)
	expect.That(t, s.HeldBack(&ours, field) != 0, "Our own write frees the job")
	changed := *job.DeepCopy()
	changed.Annotations = map[string]string{"try": "again"}
	expect.Same(t, "Unexpected wait of a changed job", 0, s.HeldBack(&changed, field))
	moved := *job.DeepCopy()
	moved.Labels = map[string]string{kit.QueueLabel: "another"}
	expect.Same(t, "Unexpected wait of a job that got another queue", 0, s.HeldBack(&moved, field))
	expect.Same(t, "Unexpected time that a changed job is held back", time.Minute, s.HoldBack("wl", &changed, field, 2*time.Minute))
	s.LacksNothing(Admission{workload: "wl"})
	expect.Same(t, "Unexpected time that a job is held back that has started since", time.Minute, s.HoldBack("wl", &changed, field, 2*time.Minute))
}

// Whoever changes the job gets an answer soon, also to the tries after that.
func TestUnmade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &Unmade{}
		wait, refused := u.Wait(1)
		expect.That(t, wait == 0 && !refused, "A job of which nothing is known waits %s; refused: %t", wait, refused)
		for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			expect.Same(t, fmt.Sprintf("%d: unexpected wait", i), want*time.Second, u.Found(true))
		}
		wait, refused = u.Wait(2)
		expect.That(t, wait == changedUnmade && refused, "A job that was changed waits %s; refused: %t", wait, refused)
		expect.Same(t, "Unexpected wait of a job that was changed, and refused again", 10*time.Second, u.Found(true))
		u.Found(false)
		expect.Same(t, "Unexpected wait after a look without a refusal", 10*time.Second, u.Found(true))
	})
}
