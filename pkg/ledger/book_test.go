// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

type seconds = map[string]float64

// gpuSeconds are the numbers of a book for GPUs, by phase or outcome.
func gpuSeconds(of map[slot]float64) seconds {
	sums := seconds{}
	for s, seconds := range of {
		if s.Resource == "nvidia.com/gpu" {
			sums[s.is] += seconds
		}
	}
	return sums
}

func sums(b *Book, now time.Time) seconds {
	return gpuSeconds(b.Totals(now))
}

// reloaded returns the book that another process reads.
func reloaded(t *testing.T, b *Book, now time.Time) *Book {
	t.Helper()
	return expect.Must(decode(encoded(t, b, now)))(t).book(now)
}

func encoded(t *testing.T, b *Book, now time.Time) []byte {
	t.Helper()
	data, _, err := b.checkpoint("test", now).encode()
	expect.NoError(t, err)
	return data
}

// story is what happens to Workloads in the eyes of a manager, and what they have held in the end.
type story struct {
	steps []storyStep
	until int
	want  seconds
}

type storyStep struct {
	at   int
	wl   object
	gone bool
	// saved is when the book was saved and read by another process before; 0: it was not.
	saved int
}

func (s story) sees(at int, wl object) story {
	s.steps = append(s.steps, storyStep{at: at, wl: wl})
	return s
}

// loses has it seen last before it is gone.
func (s story) loses(at int, wl object) story {
	s.steps = append(s.steps, storyStep{at: at, wl: wl, gone: true})
	return s
}

// restarts has another process go on by what was saved then.
func (s story) restarts(saved, at int, wl object) story {
	s.steps = append(s.steps, storyStep{at: at, wl: wl, saved: saved})
	return s
}

func (s story) holds(until int, want seconds) story { return story{s.steps, until, want} }

func TestBook(t *testing.T) {
	const gpus = 16.0
	a := func() object { return newObject("a") }
	running := func() object { return a().reserve(10).admit(12).ready(20) }
	evicted := func() object { return running().evict(50) }
	reset := func() object { return evicted().set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart, 51) }
	succeeded := func() object { return running().finish(kueue.WorkloadFinishedReasonSucceeded, 60) }
	failed := func() object { return running().finish(kueue.WorkloadFinishedReasonFailed, 34) }
	lacksPod := func() object { return running().set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForRecovery, 30) }
	wasUseful := seconds{"waiting": 10 * gpus, "running": 40 * gpus, "useful": 40 * gpus}
	wasLost := seconds{"waiting": 10 * gpus, "running": 30 * gpus, "stopping": 5 * gpus, "lost": 30 * gpus}
	wasDeleted := seconds{"waiting": 10 * gpus, "running": 10 * gpus, "stopping": 5 * gpus, "deleted": 10 * gpus}
	expect.Rows(t, map[string]story{
		"it runs on":                                  story{}.sees(21, running()).holds(30, seconds{"waiting": 10 * gpus, "running": 10 * gpus}),
		"only the last version is seen":               story{}.sees(70, succeeded()).holds(100, wasUseful),
		"it is seen twice":                            story{}.sees(61, succeeded()).sees(62, succeeded()).restarts(399, 400, succeeded()).holds(500, wasUseful),
		"it is evicted and gives its quota back":      story{}.sees(21, running()).sees(56, evicted().release(55)).holds(100, wasLost),
		"its readiness was reset when it was evicted": story{}.sees(21, running()).sees(52, reset()).sees(56, reset().release(55)).holds(100, wasLost),
		"it gave its quota back and got it again before anybody looked": story{}.sees(51, evicted()).
			restarts(51, 70, reset().release(55).reserve(60).admit(60).ready(65)).
			holds(70, seconds{"waiting": 15 * gpus, "running": 35 * gpus, "stopping": 5 * gpus, "lost": 30 * gpus}),
		"it gave its quota back and got it again in the same second": story{}.sees(10, versioned(a().reserve(10), "1")).
			sees(10, versioned(a().reserve(10).release(10), "2")).
			sees(10, versioned(a().reserve(10).release(10).reserve(10), "3")).
			sees(13, versioned(a().reserve(10).release(10).reserve(10).admit(12), "4")).
			sees(14, versioned(a().reserve(10), "1")).holds(30, seconds{"waiting": 20 * gpus}),
		"another process goes on with one that got its quota again in the same second": story{}.sees(10, versioned(a().reserve(10), "1")).
			sees(10, versioned(a().reserve(10).release(10), "2")).
			restarts(15, 20, versioned(a().reserve(10).release(10).reserve(10), "3")).
			sees(21, versioned(a().reserve(10), "1")).holds(30, seconds{"waiting": 20 * gpus}),
		"a pod is lost and recovers": story{}.sees(21, running()).sees(31, lacksPod()).
			sees(41, lacksPod().set(kueue.WorkloadPodsReady, true, kueue.WorkloadRecovered, 40)).
			holds(50, seconds{"waiting": 20 * gpus, "running": 20 * gpus}),
		"a pod is reclaimed": story{}.sees(21, running()).sees(30, reclaimed(running())).holds(40, seconds{"waiting": 10 * gpus, "running": 15 * gpus}),
		"it is deleted":      story{}.sees(31, running().deleted(30)).loses(35, running().deleted(30)).holds(40, wasDeleted),
		"an old copy comes after it is gone": story{}.loses(35, running().deleted(30)).sees(36, versioned(running(), "")).
			sees(37, versioned(running().release(34).reserve(35), "")).holds(40, wasDeleted),
		"another process sees an old copy after it is gone": story{}.loses(35, running().deleted(30)).
			restarts(36, 37, versioned(running(), "")).sees(38, versioned(failed(), "")).holds(40, wasDeleted),
		"another process goes on": story{}.sees(21, running()).restarts(22, 80, evicted().release(55)).holds(90, wasLost),
		"an old version comes late": story{}.sees(56, versioned(evicted().release(55).reserve(60), "9")).sees(57, versioned(running(), "5")).
			holds(70, seconds{"waiting": 10 * gpus}),
		"another process sees an old version of what has ended": story{}.sees(21, running()).
			sees(56, versioned(evicted().release(55), "9")).restarts(57, 60, versioned(running(), "5")).holds(70, wasLost),
	}, func(t *testing.T, tc story) {
		b, known := NewBook(noon), time.Time{}
		for _, s := range tc.steps {
			if s.saved != 0 {
				b, known = reloaded(t, b, at(s.saved)), at(s.saved)
			}
			b.Observe(Read(s.wl.Workload, Facts{WaitsForPods: true}), at(s.at), known)
			if s.gone {
				b.Gone(s.wl.UID, at(s.at), at(s.at))
			}
		}
		expect.Same(t, "Unexpected GPU seconds", tc.want, sums(b, at(tc.until)))
	})
}

func reclaimed(o object) object {
	o.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	return o
}

func versioned(o object, version string) object {
	o.ResourceVersion = version
	return o
}

func TestBookBeginsWithNothing(t *testing.T) {
	b := NewBook(at(30))
	b.Observe(Read(newObject("a").reserve(10).admit(12).ready(20).finish(kueue.WorkloadFinishedReasonSucceeded, 25).Workload, Facts{}), at(31), at(30))
	b.Observe(Read(newObject("b").reserve(10).admit(12).ready(20).Workload, Facts{}), at(31), at(30))
	expect.Same(t, "Unexpected GPU seconds", seconds{"running": 16 * 10}, sums(b, at(40)))
}

func TestBookKnowsTheUserOfAJobThatIsGone(t *testing.T) {
	b := NewBook(noon)
	b.Observe(Read(newObject("a").reserve(10).Workload, Facts{User: "ann"}), at(11), time.Time{})
	b.Observe(Read(newObject("a").reserve(10).deleted(20).Workload, Facts{UserUnknown: true}), at(21), time.Time{})
	held := b.Totals(at(30))
	for s := range held {
		expect.That(t, s.User == "ann", "User %q holds %s", s.User, s.Resource)
	}
	b.Observe(Read(newObject("a").reserve(10).deleted(20).Workload, Facts{User: "bob"}), at(30), time.Time{})
	users := seconds{}
	held = b.Totals(at(40))
	for s, seconds := range held {
		if s.Resource == "nvidia.com/gpu" {
			users[s.User] += seconds
		}
	}
	expect.Same(t, "Unexpected GPU seconds by user after the label was edited", seconds{"ann": 20 * 16, "bob": 10 * 16}, users)
}

func TestObserveEnd(t *testing.T) {
	waits := newObject("a").reserve(10).admit(10)
	runs := waits.copy().ready(12)
	type row struct {
		before, after object
		want          bool
	}
	expect.Rows(t, map[string]row{
		"quota is reserved":                 {before: newObject("a"), after: waits},
		"its pods get ready":                {before: waits, after: runs},
		"nothing changes":                   {before: runs, after: runs},
		"its pods are not ready any more":   {before: runs, after: runs.copy().set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForRecovery, 20), want: true},
		"it is evicted":                     {before: runs, after: runs.copy().evict(20), want: true},
		"it is evicted before its pods ran": {before: waits, after: waits.copy().evict(20), want: true},
		"it finishes":                       {before: runs, after: runs.copy().finish(kueue.WorkloadFinishedReasonSucceeded, 20), want: true},
		"a stop that is known goes on":      {before: runs.copy().evict(20), after: runs.copy().evict(20).release(30)},
	}, func(t *testing.T, tc row) {
		b := NewBook(noon)
		b.observeEnd(Read(versioned(tc.before, "1").Workload, Facts{WaitsForPods: true}), at(31))
		got := b.observeEnd(Read(versioned(tc.after, "2").Workload, Facts{WaitsForPods: true}), at(31))
		expect.Same(t, "Unexpected answer", tc.want, got)
	})
}

func TestBookCountsWhatEndedLongBeforeItWasSaved(t *testing.T) {
	b := NewBook(noon)
	ended := func(uid types.UID) Reading {
		return Read(newObject(uid).reserve(10).admit(10).ready(10).finish(kueue.WorkloadFinishedReasonSucceeded, 20).Workload, Facts{})
	}
	b.Observe(Read(newObject("open").reserve(10).admit(10).ready(10).Workload, Facts{}), at(11), time.Time{})
	b.Observe(ended("in the totals"), at(21), time.Time{})
	late := at(20).Add(2 * remembered)
	b = reloaded(t, b, late)
	for _, uid := range []types.UID{"open", "in the totals"} {
		b.Observe(ended(uid), late, late)
	}
	want := seconds{"running": 2 * 16 * 10, "useful": 2 * 16 * 10}
	expect.Same(t, "Unexpected GPU seconds", want, sums(b, late))
	b = reloaded(t, b, late.Add(remembered))
	b.Observe(ended("in the totals"), late, late)
	expect.Same(t, "Unexpected GPU seconds of the next process", want, sums(b, late))
	behind := expect.Must(decode(encoded(t, b, late)))(t).book(at(30))
	behind.Observe(ended("in the totals"), at(30), at(30))
	expect.Same(t, "Unexpected GPU seconds by a clock that is behind", want, sums(behind, at(30)))
	gone := NewBook(noon)
	gone.Observe(Read(newObject("gone").reserve(10).admit(10).ready(10).Workload, Facts{}), at(11), time.Time{})
	gone.Gone("gone", at(400), at(400))
	gone = reloaded(t, gone, at(400).Add(remembered))
	gone.Observe(ended("not in the totals"), late, time.Time{})
	expect.Same(t, "Unexpected GPU seconds of what ended by another clock", 16*10, sums(gone, late)["useful"])
	ahead := (Saved{Began: noon, Saved: late}).book(at(20))
	expect.That(t, !ahead.assumed.After(noon), "Of a clock that is ahead, all until %s is taken for counted", ahead.assumed)
}

func TestBookEndsWhatIsGoneNoLaterThanNow(t *testing.T) {
	b := NewBook(noon)
	b.Observe(Read(newObject("a").reserve(10).Workload, Facts{}), at(11), time.Time{})
	b = reloaded(t, b, at(700))
	b.catchUp(nil, func(types.UID) bool { return false }, nil, at(700), at(500))
	expect.Same(t, "Unexpected GPU seconds", seconds{"waiting": 16 * 490}, sums(b, at(500)))
}

func TestBookForgetsWhatIsGone(t *testing.T) {
	b := NewBook(noon)
	b.Observe(Read(newObject("a").reserve(10).Workload, Facts{}), at(11), time.Time{})
	b.Gone("a", at(20), at(20))
	b.prune(at(20).Add(remembered))
	expect.That(t, len(b.closed) == 1, "What has just gone is forgotten")
	b.prune(at(21).Add(remembered))
	expect.That(t, len(b.closed) == 0, "What is gone for long is remembered")
}

func TestBookBoundsQueuesAndUsers(t *testing.T) {
	b := NewBook(noon)
	for i := range maxPayers + 5 {
		user := strconv.Itoa(i)
		for range 2 {
			b.Observe(Read(newObject(types.UID(user)).reserve(10).Workload, Facts{User: user}), at(11), time.Time{})
		}
		queued := newObject(types.UID("queued" + user)).reserve(10)
		queued.Namespace, queued.Spec.QueueName = "queues", kueue.LocalQueueName(user)
		b.Observe(Read(queued.Workload, Facts{}), at(11), time.Time{})
	}
	other := newObject("other").reserve(10)
	other.Namespace = "other"
	b.Observe(Read(other.Workload, Facts{User: "ann"}), at(11), time.Time{})
	users, queues := map[string]bool{}, map[string]bool{}
	for s := range b.Holds() {
		switch s.Namespace {
		case "queues":
			queues[s.LocalQueue] = true
		case "other":
			expect.Same(t, "Unexpected user of another namespace", "ann", s.User)
		default:
			users[s.User] = true
		}
	}
	for what, of := range map[string]map[string]bool{"users": users, "queues": queues} {
		expect.That(t, len(of) == maxPayers+1 && of[others], "There are %d %s, others among them: %t; want %d and others", len(of), what, of[others], maxPayers)
	}
}

// What a holding is told as stays where its TrainJob goes before it, though none is told apart any more that comes now.
func TestBookKnowsThePayerOfAJobThatIsGoneBeyondTheBound(t *testing.T) {
	b := NewBook(noon)
	for i := range maxPayers {
		b.Observe(Read(newObject(types.UID(strconv.Itoa(i))).reserve(10).Workload, Facts{User: strconv.Itoa(i)}), at(11), time.Time{})
	}
	before := b.Holds()
	b.Observe(Read(newObject("1").reserve(10).Workload, Facts{UserUnknown: true}), at(21), time.Time{})
	expect.That(t, maps.Equal(before, b.Holds()), "It is told as another series: %v", b.open["1"].last().Shares)
}

// A tenant may change labels as often as it likes.
func TestBookBoundsTheSpansOfAHolding(t *testing.T) {
	b := NewBook(noon)
	wl := newObject("a").reserve(10)
	for i := range 3 * maxSpans {
		wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef([]string{"low", "high"}[i%2])
		b.Observe(Read(wl.Workload, Facts{User: []string{"ann", "bob"}[i%2]}), at(11+i), time.Time{})
	}
	expect.Same(t, "Unexpected number of spans", maxSpans, len(b.open["a"].Spans))
	b.Observe(Read(reclaimed(wl).Workload, Facts{User: "cid"}), at(1000), time.Time{})
	h := b.open["a"]
	expect.That(t, len(h.Spans) == 1 && len(h.Past) <= maxSpans && h.reserved().Equal(at(10)),
		"There are %d spans and %d past series, reserved at %s", len(h.Spans), len(h.Past), h.reserved())
	waited := sums(b, at(1000))["waiting"]
	expect.Same(t, "Unexpected GPU seconds", 16.0*(1000-10), waited)
}

// Its pods may lose readiness as often as they like, too.
func TestBookBoundsThePhasesOfAHolding(t *testing.T) {
	b := NewBook(noon)
	wl := newObject("a").reserve(0).admit(0)
	want := seconds{}
	for i := 1; i < 10*maxSpans; i++ {
		if i%2 == 1 {
			wl = wl.ready(i)
		} else {
			wl = wl.set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForRecovery, i)
		}
		b.Observe(Read(wl.Workload, Facts{WaitsForPods: true}), at(i), time.Time{})
		want[[]string{"running", "waiting"}[i%2]] += 16
		expect.Need(t, len(b.open["a"].Spans) <= maxSpans, "There are %d spans after %d changes", len(b.open["a"].Spans), i)
	}
	now := at(10*maxSpans - 1)
	expect.Same(t, "Unexpected GPU seconds", want, sums(b, now))
	b = reloaded(t, b, now)
	expect.Same(t, "Unexpected GPU seconds of another process", want, sums(b, now))
	b.Observe(Read(wl.evict(10*maxSpans).Workload, Facts{WaitsForPods: true}), at(10*maxSpans), time.Time{})
	b.Gone("a", at(10*maxSpans), at(10*maxSpans))
	expect.Same(t, "Unexpected GPU seconds of the run that was lost", want["running"]+16, sums(b, now)["lost"])
}

func TestCheckpointIsACopy(t *testing.T) {
	b := NewBook(noon)
	b.Observe(Read(newObject("a").reserve(10).admit(10).ready(15).Workload, Facts{}), at(16), time.Time{})
	c := b.checkpoint("test", at(17))
	before := expect.Must(compress(c))(t)
	b.Observe(Read(reclaimed(newObject("a").reserve(10).admit(10).ready(15)).evict(25).Workload, Facts{}), at(26), time.Time{})
	expect.That(t, bytes.Equal(before, expect.Must(compress(c))(t)), "What is saved changes while it is encoded")
}

func TestCheckpointFits(t *testing.T) {
	b := NewBook(noon)
	random := rand.New(rand.NewPCG(1, 2))
	// Names are long, or it takes more of them to fill a ConfigMap.
	uid := func() types.UID {
		var long []byte
		for range 15 {
			long = strconv.AppendUint(long, random.Uint64(), 36)
		}
		return types.UID(long)
	}
	running := Read(newObject("a").reserve(5).admit(6).ready(8).Workload, Facts{})
	for range 10_000 {
		running.UID = uid()
		b.Observe(running, at(11), time.Time{})
	}
	stopping := newObject(uid()).reserve(10).evict(20)
	b.Observe(Read(stopping.Workload, Facts{}), at(11), time.Time{})
	again := reloaded(t, b, at(12))
	expect.That(t, len(again.open) == 1 && again.open[stopping.UID] != nil,
		"A checkpoint that is too large has %d holdings, want the one that ends", len(again.open))
	for range 12_000 {
		b.totals[slot{Series{ClusterQueue: "gpus", Namespace: "hostile", LocalQueue: string(uid()), User: "ann"}, metrics.PhaseRunning}] = 2
	}
	neighbour := slot{Series{ClusterQueue: "gpus", Namespace: "neighbour", LocalQueue: "main", User: "bob"}, metrics.PhaseRunning}
	b.totals[neighbour] = 1
	together := slot{Series{ClusterQueue: "gpus", Namespace: "hostile", LocalQueue: others, User: others}, metrics.PhaseRunning}
	held := reloaded(t, b, at(13)).totals
	expect.Same(t, "Unexpected seconds of queues that no ConfigMap takes", 24_000, held[together])
	expect.Same(t, "Unexpected seconds of another namespace", 1, held[neighbour])
	for range 12_000 {
		b.totals[slot{Series{ClusterQueue: "gpus", Namespace: string(uid()), LocalQueue: "main"}, metrics.PhaseRunning}] = 3
	}
	together = slot{Series{ClusterQueue: "gpus", Namespace: others, LocalQueue: others}, metrics.PhaseRunning}
	expect.Same(t, "Unexpected seconds of namespaces that no ConfigMap takes", 36_000, reloaded(t, b, at(13)).totals[together])
	for i := range 10_000 {
		b.totals[slot{Series{ClusterQueue: string(uid()), LocalQueue: strconv.Itoa(i)}, metrics.PhaseRunning}] = random.Float64()
	}
	_, _, err := b.checkpoint("test", at(13)).encode()
	expect.That(t, err != nil, "A checkpoint that no ConfigMap takes is no error")
}

func TestDecodeRefuses(t *testing.T) {
	valid := func(c Saved) []byte { return expect.Must(compress(c))(t) }
	for name, data := range map[string][]byte{
		"nothing":                       nil,
		"what is not compressed":        []byte("{}"),
		"another format":                valid(Saved{Format: format + 1}),
		"a holding without a beginning": valid(Saved{Format: format, Open: []*Holding{{UID: "a"}}}),
		"a holding that is none":        valid(Saved{Format: format, Open: []*Holding{nil}}),
		"half of what was saved":        valid(Saved{Format: format})[:20],
	} {
		_, err := decode(data)
		expect.That(t, err != nil, "%s is taken for a checkpoint", name)
	}
}
