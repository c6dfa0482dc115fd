// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// stage is an API server, and how often the ConfigMap was written.
type stage struct {
	client.WithWatch
	writes   atomic.Int64
	refusing atomic.Bool
}

var errRefused = errors.New("no")

func newStage(t *testing.T, objs ...client.Object) *stage {
	t.Helper()
	s := &stage{}
	s.WithWatch = kit.Writes(kit.Fake(kit.Scheme(), objs...).Build(), func(kit.Write) error {
		s.writes.Add(1)
		if s.refusing.Load() {
			return errRefused
		}
		return nil
	})
	return s
}

func saved(data []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-trainer-system", Name: ConfigMapName},
		BinaryData: map[string][]byte{configMapKey: data},
	}
}

// ledger returns one process's ledger, and its events.
func (s *stage) ledger() (*Ledger, *events.FakeRecorder) {
	recorder := events.NewFakeRecorder(10)
	return New(Options{
		Namespace: "kueue-trainer-system", Live: s, Writer: s, Cached: s, Recorder: recorder, Log: logr.Discard(),
		Facts: func(context.Context, *kueue.Workload) Facts { return Facts{WaitsForPods: true} },
	}), recorder
}

// lead starts a ledger; what is returned ends it as a manager that stops does.
func lead(t *testing.T, l *Ledger) func() {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Start(ctx) }()
	synctest.Wait()
	return func() {
		stop()
		expect.NoError(t, <-done)
	}
}

// leads has another process lead until it is stopped.
func (s *stage) leads(t *testing.T) (*Ledger, func()) {
	t.Helper()
	l, _ := s.ledger()
	return l, lead(t, l)
}

// onStage runs a test in a time of its own.
func onStage(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStage(t)) })
}

// leading runs one with a ledger that leads.
func leading(t *testing.T, test func(t *testing.T, s *stage, l *Ledger)) {
	t.Helper()
	onStage(t, func(t *testing.T, s *stage) {
		l, stop := s.leads(t)
		defer stop()
		test(t, s, l)
	})
}

// billed are the GPU seconds that it has counted by now.
func (l *Ledger) billed() seconds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sums(l.book, time.Now())
}

func (l *Ledger) together(as func(Series) Series) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putTogether(as)
}

// ofTrainJob makes a Workload that of a TrainJob, with conditions that begin now.
func ofTrainJob(uid types.UID) object {
	o := newObject(uid)
	owner := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm", UID: "job"}}
	o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, trainjob.GVK)}
	return o
}

func TestOfTrainJob(t *testing.T) {
	newer, foreign := ofTrainJob("a"), ofTrainJob("a")
	newer.OwnerReferences[0].APIVersion = trainjob.GVK.Group + "/v9"
	foreign.OwnerReferences[0].APIVersion = "example.com/" + trainjob.GVK.Version
	expect.Answers(t, OfTrainJob, map[string]expect.Row[*kueue.Workload, bool]{
		"a TrainJob":                    {In: ofTrainJob("a").Workload, Want: true},
		"a TrainJob of another version": {In: newer.Workload, Want: true},
		"a TrainJob of somebody else":   {In: foreign.Workload},
		"nothing":                       {In: newObject("a").Workload},
	})
}

// now is the second after noon that it is now.
func now() int { return int(time.Since(noon).Seconds()) }

func TestLedgerSavesSoonWhatEnds(t *testing.T) {
	leading(t, func(t *testing.T, s *stage, l *Ledger) {
		expect.Same(t, "Unexpected number of writes for the beginning", int64(1), s.writes.Load())
		runs := func(uid types.UID) object { return ofTrainJob(uid).reserve(now()) }
		writes := func(want int, when string) {
			t.Helper()
			expect.Pass(soonest + time.Millisecond)
			expect.Same(t, "Unexpected writes "+when, int64(want), s.writes.Load()-1)
		}
		a, b, c := runs("a"), runs("b"), runs("c")
		for _, o := range []object{a, b, c} {
			l.look(t.Context(), versioned(o, "1").Workload)
		}
		writes(0, "for three that begin")
		evict := func(o object) { l.look(t.Context(), versioned(o.copy().evict(now()), "2").Workload) }
		evict(a)
		synctest.Wait()
		expect.Same(t, "Unexpected writes for one that is evicted", int64(1), s.writes.Load()-1)
		evict(b)
		evict(c)
		writes(2, "for two that are evicted soon after")
		l.Leave("a")
		writes(3, "for one that is about to be gone")
		l.Leave("a")
		l.Leave("nobody")
		writes(3, "for none")
		expect.Pass(refreshPeriod - savePeriod)
		expect.Same(t, "Unexpected writes while nothing changes", int64(3), s.writes.Load()-1)
		expect.Pass(refreshPeriod)
		expect.Same(t, "Unexpected writes of what is held for long", int64(4), s.writes.Load()-1)
		for _, uid := range []types.UID{"a", "b", "c"} {
			l.gone(uid)
		}
		expect.Pass(savePeriod)
		expect.Same(t, "Unexpected writes at the end", int64(5), s.writes.Load()-1)
		expect.Pass(2 * refreshPeriod)
		expect.Same(t, "Unexpected writes while nothing is held", int64(5), s.writes.Load()-1)
	})
}

// Nothing tells when a Workload went that is not there for the next leader: what it held counts until the last save.
func TestLedgerCountsWhatIsHeldForLongWithoutAWord(t *testing.T) {
	expect.Rows(t, map[string]time.Duration{"its leader was stopped": 0, "its leader was killed": refreshPeriod}, func(t *testing.T, atMost time.Duration) {
		onStage(t, func(t *testing.T, s *stage) {
			former, stop := s.leads(t)
			former.look(t.Context(), ofTrainJob("a").reserve(now()).admit(now()).ready(now()).Workload)
			const ran = 3*time.Hour + 7*time.Minute
			expect.Pass(ran)
			if atMost > 0 {
				s.refusing.Store(true)
			}
			stop()
			s.refusing.Store(false)
			latter, stop := s.leads(t)
			defer stop()
			missing := ran - time.Duration(latter.billed()["running"]/16)*time.Second
			expect.That(t, missing >= 0 && missing <= atMost, "%s of it are missing, want %s at the most", missing, atMost)
		})
	})
}

func TestLedgerKnowsWhatLeftBeforeItWasRead(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		former, stop := s.leads(t)
		began := time.Now()
		former.look(t.Context(), ofTrainJob("a").reserve(now()).admit(now()).ready(now()).Workload)
		stop()
		latter, _ := s.ledger()
		expect.Pass(20 * time.Second)
		latter.Leave("a")
		expect.Pass(10 * time.Second)
		defer lead(t, latter)()
		expect.Same(t, "It held for another time", seconds{"running": 16 * 20, "deleted": 16 * 20}, latter.billed())
		expect.Same(t, "Unexpected time", 30*time.Second, time.Since(began))
	})
}

// What a run used is forgotten by its objects, so that a refusal must not lose it. Meanwhile Prometheus is told of it.
func TestLedgerSavesAgainWhatWasRefused(t *testing.T) {
	leading(t, func(t *testing.T, s *stage, l *Ledger) {
		tells := func(want time.Duration) {
			t.Helper()
			got, tries := l.unsaved()
			expect.That(t, tries && got == want, "Nothing has been saved for %s, leading: %t; want %s", got, tries, want)
		}
		tells(0)
		o := ofTrainJob("a").reserve(now())
		l.look(t.Context(), versioned(o, "1").Workload)
		s.refusing.Store(true)
		l.look(t.Context(), versioned(o.copy().evict(now()), "2").Workload)
		expect.Pass(soonest)
		expect.Pass(10 * time.Minute)
		tells(10 * time.Minute)
		s.refusing.Store(false)
		expect.Pass(retryPeriod)
		tells(0)
		saved := expect.Must(LoadSaved(t.Context(), s, "kueue-trainer-system"))(t)
		expect.Same(t, "Unexpected number of holdings that are saved", 1, len(saved.Open))
	})
}

func TestLedgerSavesChangesOnceAMinute(t *testing.T) {
	leading(t, func(t *testing.T, s *stage, l *Ledger) {
		for i := range 30 {
			l.look(t.Context(), ofTrainJob(types.UID(rune('a'+i))).reserve(now()).Workload)
			expect.Pass(4 * time.Second)
		}
		synctest.Wait()
		writes := s.writes.Load()
		expect.That(t, writes >= 2 && writes <= 4, "%d writes in two minutes, want 1 and one for each", writes)
	})
}

func TestLedgerReadsAVersionOnce(t *testing.T) {
	leading(t, func(t *testing.T, _ *stage, l *Ledger) {
		holds := func(phase string) {
			t.Helper()
			l.mu.Lock()
			defer l.mu.Unlock()
			expect.Same(t, "It holds something else", map[string]float64{phase: 16}, gpuSeconds(l.book.Holds()))
		}
		l.look(t.Context(), versioned(ofTrainJob("a").reserve(now()).admit(now()), "1").Workload)
		holds("waiting")
		expect.Pass(10 * time.Second)
		evicted := ofTrainJob("a").reserve(now() - 10).admit(now() - 10).evict(now())
		l.look(t.Context(), versioned(evicted, "1").Workload)
		holds("waiting")
		l.look(t.Context(), versioned(evicted, "2").Workload)
		holds("stopping")
		l.gone("a")
		l.look(t.Context(), versioned(evicted, "2").Workload)
		expect.That(t, len(l.noted) == 0, "A Workload that is gone is remembered")
	})
}

func TestPauseBetweenSaves(t *testing.T) {
	expect.Answers(t, pause, map[string]expect.Row[time.Duration, time.Duration]{
		"a save that takes no time": {Want: time.Second},
		"a short save":              {In: 20 * time.Millisecond, Want: time.Second},
		"that of a large ledger":    {In: 150 * time.Millisecond, Want: 1500 * time.Millisecond},
		"a slow API server":         {In: 4 * time.Second, Want: 2500 * time.Millisecond},
	})
}

func TestLedgerThatIsNeverReadSaysSo(t *testing.T) {
	expect.Rows(t, map[string]func(context.Context) error{
		"the API server refuses": func(context.Context) error { return errors.New("no") },
		"the API server hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	}, func(t *testing.T, read func(context.Context) error) {
		onStage(t, func(t *testing.T, s *stage) {
			l, _ := s.ledger()
			reads := 0
			l.store.reader = interceptor.NewClient(s, interceptor.Funcs{
				Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
					reads++
					return read(ctx)
				},
			})
			stop := lead(t, l)
			expect.Pass(3 * saveTimeout)
			unsaved, tries := l.unsaved()
			expect.That(t, tries && unsaved > saveTimeout && reads >= 2, "After %d reads it tells for %s, leading: %t, that it cannot be saved", reads, unsaved, tries)
			stop()
		})
	})
}

func TestLedgerDoesNotGuessWhatIsGone(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		former, stop := s.leads(t)
		there, gone := ofTrainJob("there").reserve(now()), ofTrainJob("gone").reserve(now())
		there.Name, there.ResourceVersion = "there", ""
		expect.NoError(t, s.Create(t.Context(), there.Workload))
		former.look(t.Context(), there.Workload)
		former.look(t.Context(), gone.Workload)
		stop()

		latter, _ := s.ledger()
		var unanswered atomic.Bool
		unanswered.Store(true)
		latter.options.Cached = kit.Lists(s, func(client.ObjectList) error {
			if unanswered.Load() {
				return kit.ErrAnswered
			}
			return nil
		})
		latter.options.Live = kit.Gets(s, func(obj client.Object, _ client.ObjectKey) error {
			if _, ok := obj.(*metav1.PartialObjectMetadata); ok && unanswered.Load() {
				return errRefused
			}
			return nil
		})
		defer lead(t, latter)()
		_, leads := latter.tell(true)
		expect.That(t, !leads, "Whether Workloads are there cannot be asked, and it tells what they held")
		unanswered.Store(false)
		expect.Pass(2 * soonest)
		latter.mu.Lock()
		defer latter.mu.Unlock()
		expect.That(t, latter.book != nil && latter.book.open["there"] != nil && latter.book.open["gone"] == nil,
			"Want the holding of the Workload that is there, and none of the other one")
	})
}

func TestLedgerOfAnotherLeaderIsNotOverwritten(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		former, stopFormer := s.leads(t)
		running := ofTrainJob("a").reserve(now()).admit(now()).ready(now())
		running.ResourceVersion = ""
		expect.NoError(t, s.Create(t.Context(), running.Workload))
		s.writes.Store(0)
		former.look(t.Context(), running.Workload)
		expect.Pass(savePeriod + time.Second)

		latter, stopLatter := s.leads(t)
		latter.look(t.Context(), versioned(running.copy().evict(now()).release(now()), "1000").Workload)
		stopLatter()
		former.look(t.Context(), versioned(running.copy().evict(now()), "999").Workload)
		expect.Pass(2 * soonest)
		stopFormer()

		saved := expect.Must(LoadSaved(t.Context(), s, "kueue-trainer-system"))(t)
		expect.That(t, saved.Writer == latter.store.self && len(saved.Open) == 0,
			"The latter leader's ledger was overwritten: written by it: %t, %d holdings", saved.Writer == latter.store.self, len(saved.Open))
	})
}

func TestLedgerSurvivesAnEditedLabel(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		l, stop := s.leads(t)
		l.look(t.Context(), ofTrainJob("a").reserve(now()).Workload)
		var cm corev1.ConfigMap
		expect.NoError(t, s.Get(t.Context(), l.store.key, &cm))
		cm.Labels["edited"] = "true"
		expect.NoError(t, s.Update(t.Context(), &cm))
		expect.Pass(2*savePeriod + time.Second)
		stop()
		saved := expect.Must(LoadSaved(t.Context(), s, "kueue-trainer-system"))(t)
		expect.Same(t, "Unexpected number of holdings that are saved", 1, len(saved.Open))
	})
}

func TestLedgerThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, saved([]byte("nonsense")))
		l, recorder := s.ledger()
		stop := lead(t, l)
		account, leads := l.tell(true)
		expect.That(t, leads && !account.began.IsZero() && len(account.totals) == 0,
			"It leads: %t, began %s with %d totals; want it to begin at 0", leads, account.began, len(account.totals))
		stop()
		told := <-recorder.Events
		expect.That(t, strings.Contains(told, "LedgerUnreadable"), "People are told %q", told)
		expect.Must(LoadSaved(t.Context(), s, "kueue-trainer-system"))(t)
		var kept corev1.ConfigMap
		key := client.ObjectKey{Namespace: "kueue-trainer-system", Name: unreadableName}
		expect.NoError(t, s.Get(t.Context(), key, &kept))
		expect.Same(t, "Unexpected copy of what cannot be read", "nonsense", string(kept.BinaryData[configMapKey]))
	})
}

// Who orphans a Workload takes its owner off: Kueue finishes it, and the manager may restart in between.
func TestLedgerFollowsAWorkloadThatIsOrphaned(t *testing.T) {
	expect.Rows(t, map[string]bool{"under the same leader": false, "while nobody leads": true}, func(t *testing.T, restarts bool) {
		onStage(t, func(t *testing.T, s *stage) {
			l, stop := s.leads(t)
			running := ofTrainJob("a").reserve(now()).admit(now()).ready(now())
			l.look(t.Context(), running.Workload)
			expect.Pass(10 * time.Second)
			orphan := versioned(running.copy().finish(kueue.WorkloadFinishedReasonOwnerNotFound, now()), "2")
			orphan.OwnerReferences = nil
			if restarts {
				stop()
				orphan.ResourceVersion = ""
				expect.NoError(t, s.Create(t.Context(), orphan.Workload))
				l, stop = s.leads(t)
			}
			defer stop()
			l.look(t.Context(), orphan.Workload)
			expect.Pass(10 * time.Second)
			expect.Same(t, "Unexpected account", seconds{"running": 160, "deleted": 160}, l.billed())
		})
	})
}

func TestLedgerOfANewerReleaseIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := expect.Must(compress(map[string]any{"format": format + 1, "held": "in another way"}))(t)
		s := newStage(t, saved(data))
		l, recorder := s.ledger()
		stop := lead(t, l)
		expect.Pass(2 * savePeriod)
		expect.Need(t, len(recorder.Events) == 1, "People are told %d times", len(recorder.Events))
		told := <-recorder.Events
		expect.That(t, strings.Contains(told, "LedgerNewer"), "People are told %q", told)
		unsaved, tries := l.unsaved()
		expect.That(t, tries && unsaved == 2*savePeriod, "It tells for %s, leading: %t, that nothing is saved", unsaved, tries)
		_, leads := l.tell(true)
		expect.That(t, !leads, "It tells series")
		l.Leave("a")
		expect.That(t, len(l.left) == 0, "What leaves is remembered for nobody")
		stop()
		expect.Same(t, "It is written to", int64(0), s.writes.Load())
	})
}

func TestCollector(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		l, _ := s.ledger()
		registry := prometheus.NewPedanticRegistry()
		expect.NoError(t, registry.Register(NewCollector(l, true)))
		expect.Same(t, "One that does not lead tells something", 0, len(expect.Must(registry.Gather())(t)))
		defer lead(t, l)()
		wl := ofTrainJob("a").reserve(now()).admit(now())
		l.look(t.Context(), wl.Workload)
		expect.Pass(12 * time.Second)
		// The outcomes are told before there is one.
		want := map[string]float64{"held_resources": 16, "quota_resource_seconds_total": 160, "ended_resource_seconds_total": 0}
		expect.Same(t, "Unexpected metrics", want, gathered(t, registry))
		// It turns out that pods ran for long: what was told as waiting is not taken back.
		l.look(t.Context(), versioned(wl.copy().ready(now()-10), "2").Workload)
		want["quota_resource_seconds_total"] = 160 + 8*16
		expect.Same(t, "Unexpected metrics", want, gathered(t, registry))
	})
}

// What was told as one series is not told again as another one, by whichever process.
func TestCollectorTellsOnceWhatIsPutTogether(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		l, stop := s.leads(t)
		all := func(s Series) Series { return s.withoutQueue() }
		ran := func(held map[slot]float64) map[string]float64 {
			told := map[string]float64{}
			for s, seconds := range held {
				if s.is == metrics.PhaseRunning && s.Resource == "nvidia.com/gpu" {
					told[s.LocalQueue] = seconds
				}
			}
			return told
		}
		running := func(l *Ledger) map[string]float64 {
			account, _ := l.tell(true)
			return ran(account.totals)
		}
		ended, runs := ofTrainJob("ended").reserve(now()).admit(now()).ready(now()), ofTrainJob("runs").reserve(now()).admit(now()).ready(now())
		l.look(t.Context(), ended.Workload)
		l.look(t.Context(), runs.Workload)
		expect.Pass(10 * time.Second)
		l.look(t.Context(), versioned(ended.finish(kueue.WorkloadFinishedReasonSucceeded, now()), "2").Workload)
		expect.Pass(settled)
		expect.Same(t, "Unexpected seconds before", map[string]float64{"queue": 2 * 16 * 10}, running(l))
		l.together(all)
		l.look(t.Context(), versioned(runs.copy(), "3").Workload)
		expect.Pass(10 * time.Second)
		want := map[string]float64{others: 16 * 10}
		expect.Same(t, "Unexpected seconds after", want, running(l))
		bill := l.book.Totals(time.Now())
		expect.Same(t, "Unexpected seconds of the account", map[string]float64{others: 16 * (10 + 22)}, ran(bill))
		stop()
		runs.ResourceVersion = ""
		expect.NoError(t, s.Create(t.Context(), runs.Workload))
		next, stop := s.leads(t)
		defer stop()
		expect.Same(t, "Unexpected seconds of the next leader", want, running(next))
	})
}

// Without labels of LocalQueues they are one series, also when they are put together. Of users that are put together, it goes on
// as that of others, and what was told stays.
func TestCollectorWithoutLocalQueues(t *testing.T) {
	leading(t, func(t *testing.T, _ *stage, l *Ledger) {
		l.options.Facts = func(_ context.Context, wl *kueue.Workload) Facts {
			return Facts{WaitsForPods: true, User: map[types.UID]string{"a": "ann"}[wl.UID]}
		}
		for _, uid := range []types.UID{"a", "b", "c"} {
			wl := ofTrainJob(uid).reserve(now())
			wl.Spec.QueueName = kueue.LocalQueueName(uid)
			l.look(t.Context(), wl.Workload)
		}
		told := func(when string, want map[string]float64) {
			t.Helper()
			account, _ := l.tell(false)
			got := map[string]float64{}
			for s, seconds := range account.totals {
				if s.Resource == "nvidia.com/gpu" && s.is == metrics.PhaseWaiting {
					got[s.Namespace+s.LocalQueue+s.User] = seconds
				}
			}
			expect.Same(t, "Unexpected seconds by user "+when, want, got)
		}
		expect.Pass(12 * time.Second)
		told("before", map[string]float64{"": 2 * 160, "ann": 160})
		l.together(func(s Series) Series {
			s = s.withoutQueue()
			s.Namespace = others
			return s
		})
		told("then", map[string]float64{"": 2 * 160, "ann": 160, others: 0})
		expect.Pass(10 * time.Second)
		told("after", map[string]float64{"": 2 * 320, "ann": 160, others: 160})
		registry := prometheus.NewPedanticRegistry()
		expect.NoError(t, registry.Register(NewCollector(l, false)))
		want := map[string]float64{"held_resources": 3 * 16, "quota_resource_seconds_total": 3 * 320, "ended_resource_seconds_total": 0}
		expect.Same(t, "Unexpected metrics", want, gathered(t, registry))
	})
}

// gathered sums up the series of GPUs by metric.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families := expect.Must(registry.Gather())(t)
	sums := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "resource" && label.GetValue() == "nvidia.com/gpu" {
					sums[strings.TrimPrefix(family.GetName(), "kueue_trainer_")] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return sums
}

// TestSaved has who only looks know what the manager has saved, what a Workload tells since, and that another one is gone.
func TestSaved(t *testing.T) {
	b := NewBook(at(0))
	facts := Facts{WaitsForPods: true}
	runs, deleted := newObject("runs").reserve(10).admit(10).ready(20), newObject("deleted").reserve(10).admit(10).ready(10)
	for _, o := range []object{runs, deleted} {
		b.Observe(Read(o.Workload, facts), at(30), at(0))
	}
	b.Gone("deleted", at(40), at(40))
	b.Observe(Read(newObject("lost").reserve(40).admit(40).ready(40).Workload, facts), at(45), at(0))
	s := newStage(t, saved(encoded(t, b, at(50))))

	got := expect.Must(LoadSaved(t.Context(), s, "kueue-trainer-system"))(t)
	expect.That(t, got.Began.Equal(at(0)), "Began at %s", got.Began)
	totals := got.Totals([]Reading{Read(runs.evict(70).Workload, facts)}, func(uid types.UID) bool { return uid == "runs" }, at(80))
	sums := map[string]float64{}
	for _, total := range totals {
		if total.Resource == "nvidia.com/gpu" {
			sums[total.Is] += total.Seconds / 16
		}
	}
	want := map[string]float64{"waiting": 10, "running": 50 + 30 + 10, "stopping": 10, "deleted": 30 + 10}
	expect.Same(t, "Unexpected seconds of 16 GPUs", want, sums)
	expect.Same(t, "Writes of who only looks", int64(0), s.writes.Load())

	_, err := LoadSaved(t.Context(), s, "elsewhere")
	expect.That(t, apierrors.IsNotFound(err), "LoadSaved of another namespace = %v", err)
	_, err = LoadSaved(t.Context(), newStage(t, saved([]byte("?"))), "kueue-trainer-system")
	expect.Says(t, err, "ConfigMap kueue-trainer-system/kueue-trainer-ledger: ")
}
