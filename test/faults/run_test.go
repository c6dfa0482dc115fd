// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

const (
	// quiet is how long nothing must have been written before a state counts as steady.
	quiet = 300 * time.Millisecond
	// steadyFor is how long nothing may be written after a touch that changes nothing;
	// longer than every retry of the manager, of which the longest takes 2 s.
	steadyFor = 2500 * time.Millisecond
	// eventSlack is how many events more than the clean run's are not yet noise.
	eventSlack = 12
)

// Oracles beside those of every object version.
const (
	converges   history.Invariant = "converges"
	sameEnd     history.Invariant = "same end state"
	fewWrites   history.Invariant = "few writes"
	steadyState history.Invariant = "steady state"
	staysUp     history.Invariant = "stays up"
	inTheLedger history.Invariant = "in the ledger"
)

type problem struct {
	oracle  history.Invariant
	message string
}

// run is one pass through the scenario, in a namespace of its own.
type run struct {
	*harness
	*world.World
	Gomega

	t        *testing.T
	plan     plan
	recorder *record.Recorder
	// exits is what the manager's count of own exits was before.
	exits  int32
	second *apiproxy.Proxy
	// background are the faults that end by themselves.
	background sync.WaitGroup
	reached    atomic.Bool
	during     string

	mu       sync.Mutex
	seen     map[writeKind]int
	problems []problem
	// userWrites are the resource versions of TrainJobs that a user's edit made.
	userWrites map[uint64]bool
	end        endState
}

func (h *harness) carryOut(t *testing.T, p plan, results *report) *run {
	ctx := context.WithoutCancel(t.Context())
	r := &run{harness: h, t: t, plan: p, exits: h.child.exits.Load(), seen: map[writeKind]int{}, userWrites: map[uint64]bool{}}
	r.reached.Store(p.clean == nil)
	r.Gomega = NewGomega(func(message string, _ ...int) {
		r.fail(converges, "%s: %s", r.during, message)
		t.Fatal(message)
	})
	r.SetDefaultEventuallyTimeout(settleTimeout)
	r.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	r.EnforceDefaultTimeoutsWhenUsingContexts()
	r.World = world.New(ctx, r, os.Stderr, h.cluster, "faults", world.NewSuffix())
	defer results.add(r)
	defer r.judge(ctx)
	r.play(t.Context())
	return r
}

func (r *run) fail(oracle history.Invariant, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, problem{oracle, fmt.Sprintf(format, args...)})
}

func (r *run) play(ctx context.Context) {
	r.Expect(r.child.serves(ctx)).To(Succeed())
	r.makePools(ctx)
	r.record(ctx)
	r.proxy.Intercept(r.Namespace, r.intercept)
	for n := range r.plan.scenario.steps {
		r.take(ctx, n)
	}
}

// record watches the objects of the run as an outsider: past the proxy.
func (r *run) record(ctx context.Context) {
	kinds := ledger.Kinds(r.Namespace)
	for i := range kinds {
		if kinds[i].Namespace == "" && kinds[i].Resource != "nodes" {
			kinds[i].Ours = func(obj *unstructured.Unstructured) bool { return strings.HasSuffix(obj.GetName(), "-"+r.Suffix) }
		}
	}
	var err error
	r.recorder, err = record.Start(ctx, r.api, kinds, nil)
	r.Expect(err).NotTo(HaveOccurred())
}

func (r *run) take(ctx context.Context, n int) {
	s, f := r.plan.scenario.steps[n], hooks{}
	if n == r.plan.step {
		f = r.plan.around
	}
	began := time.Now()
	r.during = s.name
	r.hook(ctx, f.before)
	s.do(r, ctx)
	r.hook(ctx, f.during)
	s.settled(r, ctx)
	if f.after != nil {
		r.hook(ctx, f.after)
		s.settled(r, ctx)
	}
	took := time.Since(began)
	if s.rests {
		r.steady(ctx, s.name)
	}
	r.t.Logf("%s: settled after %.1f s, at rest after %.1f s", s.name, took.Seconds(), time.Since(began).Seconds())
}

func (r *run) hook(ctx context.Context, f hook) {
	if f == nil {
		return
	}
	r.Expect(f(ctx, r)).To(Succeed())
	r.reached.Store(true)
}

// steady: as soon as nothing is written any more, events that change nothing lead to no write.
func (r *run) steady(ctx context.Context, when string) {
	// A write that settles the state may be the one with the fault.
	for written := -1; written != len(refs(r.writes())); {
		written = len(refs(r.writes()))
		r.background.Wait()
		r.Expect(r.child.serves(ctx)).To(Succeed())
		r.eventuallyCounted(ctx)
	}
	before := -1
	err := wait.PollUntilContextTimeout(ctx, quiet, settleTimeout/2, true, func(context.Context) (bool, error) {
		r.background.Wait()
		// What runs by now may not have run a moment ago.
		r.eventuallyCounted(ctx)
		last := before
		before = len(refs(r.writes()))
		return before == last && r.child.ready(ctx) == nil, nil
	})
	if err != nil {
		r.fail(steadyState, "after %q it goes on writing: %v", when, refs(r.writes())[max(0, before-5):])
		return
	}
	r.touch(ctx)
	// That nothing happens can only be waited for.
	time.Sleep(steadyFor)
	if more := refs(r.writes())[before:]; len(more) > 0 {
		r.fail(steadyState, "after %q, an event that changes nothing made it write %v", when, more)
	}
}

// eventuallyCounted waits until what a TrainJob says of its Jobs is what its pods are, and its Workload
// says that they are ready. Job controller, JobSet and Trainer take seconds to pass that on,
// a manager that was killed as long to lead again, and it makes the integration write.
func (r *run) eventuallyCounted(ctx context.Context) {
	r.Eventually(ctx, func(g Gomega) {
		jobs := world.All(ctx, g, r, &trainer.TrainJobList{}, client.InNamespace(r.Namespace))
		for _, job := range jobs.Items {
			running, ready := 0, 0
			for _, pod := range r.Pods(ctx, job.Name) {
				if pod.Status.Phase == corev1.PodRunning {
					running++
				}
			}
			for _, status := range job.Status.JobsStatus {
				ready += int(ptr.Deref(status.Ready, 0))
			}
			g.Expect(ready).To(Equal(running), "ready Jobs of %s, which have one pod each", job.Name)
			if wl := r.Workload(ctx, job.Name); running > 0 && wl != nil && !workloadevict.IsEvicted(wl) {
				g.Expect(wl).To(world.True(kueue.WorkloadPodsReady), "the pods of %s are reported ready", job.Name)
			}
		}
	}).Should(Succeed(), "Trainer has heard of the pods that run")
}

func (r *run) writes() []apiproxy.Write {
	all := r.proxy.Writes(r.Namespace)
	if r.second != nil {
		all = append(all, r.second.Writes(r.Namespace)...)
	}
	return all
}

// intercept hands the write that the plan is for to its action.
func (r *run) intercept(e *apiproxy.Exchange) {
	kind := kindOf(e.Request)
	r.mu.Lock()
	r.seen[kind]++
	hit := r.plan.at == writeRef{kind, r.seen[kind]}
	r.mu.Unlock()
	if !hit {
		e.Pass()
		return
	}
	r.reached.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), actionTimeout)
	defer cancel()
	if err := r.plan.action.do(ctx, r, e); err != nil {
		r.fail(harnessFault, "%v", err)
	}
	r.plan.action.end(e)
}

// collect ends all faults and gives every version that there was.
func (r *run) collect(ctx context.Context) []record.Version {
	r.proxy.Intercept(r.Namespace, nil)
	r.background.Wait()
	if !r.plan.together {
		r.proxy.ReleaseAll()
	}
	if r.recorder == nil {
		return nil
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		return r.recorder.CaughtUp(ctx) == nil, nil
	})
	if err != nil && !r.t.Failed() {
		r.fail(converges, "the objects do not come to rest: %v", r.recorder.CaughtUp(ctx))
	}
	if gaps := r.recorder.Gaps(); len(gaps) > 0 {
		r.fail(converges, "recording: versions are missing: %v", gaps)
	}
	return r.recorder.Versions()
}

// judge holds the run against the clean one, if there is one yet, and says what it found.
func (r *run) judge(ctx context.Context) {
	versions := r.collect(ctx)
	for _, v := range history.Check(versions, history.Expectation{
		NodeSelector: baseSelector, Tolerations: []corev1.Toleration{kit.GPUToleration()}, OwnEntry: "kueue.x-k8s.io/manager",
		UserWrites: r.userWrites, Restarts: r.plan.restarts, AnyFlavorVersion: r.plan.anyFlavorVersion,
	}) {
		r.fail(v.Invariant, "%s: %s", v.Version, v.Message)
	}
	r.audit(versions)
	r.end = r.endOf(versions)
	if c := r.plan.clean; c != nil {
		if !r.t.Failed() {
			r.compareEnd(c)
		}
		r.compareWrites(c)
	}
	if exits := r.child.exits.Load() - r.exits; exits > 0 {
		r.fail(staysUp, "the manager ended by itself %d times", exits)
	}
	if len(r.problems) > 0 {
		r.tell(versions)
		r.t.Fail()
	}
	// Nobody waits for its objects to be gone.
	r.DeleteJobs(ctx)
	r.Unmake(ctx)
}

// audit: the pods of a job never ask for more than Kueue counts for it.
func (r *run) audit(versions []record.Version) {
	result, err := ledger.Check(versions)
	if err != nil {
		r.fail(inTheLedger, "%v", err)
	}
	for _, v := range result.Violations {
		r.fail(inTheLedger, "%s", v)
	}
	for _, v := range result.Tolerated {
		r.t.Logf("tolerated: %s", v)
	}
}

// compareWrites: a fault costs a constant number of writes more.
func (r *run) compareWrites(c *clean) {
	for kind, n := range countKinds(refs(r.writes())) {
		if limit := c.counts[kind]*max(r.plan.managers, 1) + r.plan.slack; n > limit {
			r.fail(fewWrites, "%d times %s; the clean run has %d, and the plan allows for %d", n, kind, c.counts[kind], limit)
		}
	}
	if n := r.proxy.Events(r.Namespace); n > c.events+eventSlack {
		r.fail(fewWrites, "%d events, the clean run has %d", n, c.events)
	}
}

func (r *run) tell(versions []record.Version) {
	var out strings.Builder
	for _, p := range r.problems {
		fmt.Fprintf(&out, "VIOLATED %s: %s\n", p.oracle, p.message)
	}
	fmt.Fprintf(&out, "plan: %s\nwrites in namespace %s:\n", r.plan, r.Namespace)
	for _, w := range r.writes() {
		fmt.Fprintf(&out, "  %s %s %s/%s\n", w.At.Format("15:04:05.000"), w.Verb, kindOf(w.Request).resource, w.Name)
	}
	fmt.Fprintln(&out, "versions:")
	for _, v := range versions {
		// What a node says of itself again and again tells nobody anything.
		if v.Object.GetKind() != "Node" {
			fmt.Fprintf(&out, "  %s\n", history.Summary(v))
		}
	}
	fmt.Fprintf(&out, "last lines of %s:\n%s\n", r.child.log, r.child.lastLines(15))
	fmt.Fprintf(&out, "again: go test ./test/faults -count=1 -v -run '%s'\n", r.plan.pattern())
	r.t.Log(out.String())
}
