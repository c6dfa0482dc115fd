// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// history is a cluster in which jobs come, run, are preempted and end by chance, second by second,
// while the manager is killed again and again, also between what it does and hearing of it.
type history struct {
	t       *testing.T
	random  *rand.Rand
	now     int
	version int
	jobs    map[types.UID]*simulated
	// truth has GPU seconds by phase and outcome.
	truth map[string]float64

	book  *Book
	saved []byte
	up    bool
	kills int
}

// simulated is a Workload as it is stored, and what its truth is.
type simulated struct {
	object
	phase string
	ran   float64
}

func (h *history) chance(n int) bool { return h.random.IntN(n) == 0 }

// stored counts the version of a Workload up, and has the manager hear of it where it lives.
func (h *history) stored(j *simulated) {
	h.version++
	j.ResourceVersion = strconv.Itoa(h.version)
	if !h.up {
		return
	}
	if h.book.observeEnd(Read(j.DeepCopy(), Facts{WaitsForPods: true}), at(h.now)) {
		h.save()
	}
}

// save is at once what a ledger that lives does within seconds: what is not saved by then is lost, and said to be.
func (h *history) save() {
	h.saved = encoded(h.t, h.book, at(h.now))
}

// perhapsDies ends the manager just before it hears of what it does.
func (h *history) perhapsDies() {
	if h.chance(3) {
		h.up = false
		h.kills++
	}
}

func (h *history) readings() []Reading {
	var all []Reading
	for _, j := range h.jobs {
		all = append(all, Read(j.DeepCopy(), Facts{WaitsForPods: true}))
	}
	return all
}

func (h *history) there(uid types.UID) bool { return h.jobs[uid] != nil }

func (h *history) comesBack() {
	c := expect.Must(decode(h.saved))(h.t)
	h.book, h.up = c.book(at(h.now)), true
	h.book.catchUp(h.readings(), h.there, nil, c.Saved, at(h.now))
	if h.book.forgotten() {
		h.save()
	}
}

func (h *history) ended(j *simulated, outcome string) {
	if j.ran > 0 {
		h.truth[outcome] += j.ran
	}
	j.phase, j.ran = "", 0
}

func (h *history) second(uid types.UID, j *simulated) {
	switch {
	case j.phase == "" && j.DeletionTimestamp == nil && len(j.Finalizers) > 0:
		if h.chance(5) {
			j.phase = metrics.PhaseWaiting
			j.reserve(h.now).admit(h.now)
			h.stored(j)
		}
	case j.phase == "":
	case j.phase == metrics.PhaseStopping && h.up:
		h.stops(uid, j)
	case j.phase == metrics.PhaseStopping:
	case h.chance(40):
		j.phase = metrics.PhaseStopping
		j.evict(h.now)
		h.stored(j)
	case h.chance(150):
		j.phase = metrics.PhaseStopping
		j.deleted(h.now)
		h.stored(j)
	case !h.up:
	case j.phase == metrics.PhaseWaiting && h.chance(4):
		j.phase = metrics.PhaseRunning
		j.ready(h.now)
		h.stored(j)
	case j.phase == metrics.PhaseRunning && h.chance(60):
		h.perhapsDies()
		j.finish(kueue.WorkloadFinishedReasonSucceeded, h.now)
		j.Finalizers = nil
		h.stored(j)
		h.ended(j, metrics.OutcomeUseful)
	}
}

// stops is the manager's part of a stop.
func (h *history) stops(uid types.UID, j *simulated) {
	if j.set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart, h.now); h.chance(3) {
		h.perhapsDies()
		h.stored(j)
		return
	}
	switch {
	case !h.chance(5):
	case j.DeletionTimestamp != nil:
		outcome := metrics.OutcomeDeleted
		if h.book.open[uid].Outcome == metrics.OutcomeLost {
			outcome = metrics.OutcomeLost
		}
		h.save()
		h.perhapsDies()
		delete(h.jobs, uid)
		if h.up {
			h.book.Gone(uid, at(h.now), at(h.now))
		}
		h.ended(j, outcome)
	default:
		h.perhapsDies()
		j.release(h.now)
		h.stored(j)
		h.ended(j, metrics.OutcomeLost)
	}
}

func (h *history) run(seconds int) {
	for range seconds {
		for _, uid := range slices.Sorted(maps.Keys(h.jobs)) {
			h.second(uid, h.jobs[uid])
		}
		if h.chance(15) {
			uid := types.UID("job-" + strconv.Itoa(h.version))
			j := &simulated{object: newObject(uid)}
			j.Finalizers = []string{kueue.ResourceInUseFinalizerName}
			h.jobs[uid] = j
			h.stored(j)
		}
		switch {
		case h.up && h.now%60 == 0:
			h.save()
		case h.up && h.chance(100):
			h.up = false
			h.kills++
		case !h.up && h.chance(15):
			h.comesBack()
		}
		h.now++
		for _, j := range h.jobs {
			if j.phase != "" {
				h.truth[j.phase] += 16
			}
			if j.phase == metrics.PhaseRunning {
				j.ran += 16
			}
		}
	}
}

func TestBookAgreesWithTheTruth(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			h := &history{
				t: t, random: rand.New(rand.NewPCG(seed, seed)), jobs: map[types.UID]*simulated{}, truth: map[string]float64{},
				book: NewBook(noon), up: true,
			}
			h.save()
			h.run(500)
			if !h.up {
				h.comesBack()
			}
			expect.Need(t, h.kills >= 5, "The manager was killed %d times only", h.kills)
			expect.Same(t, "The book differs from the truth", h.truth, sums(h.book, at(h.now)))
		})
	}
}
