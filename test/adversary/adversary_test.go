// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	seed     = flag.Uint64("adversary.seed", 0, "what the tenants draw is drawn by; 0: by the clock")
	length   = flag.Duration("adversary.for", 5*time.Minute, "no walk begins later than this")
	tenants  = flag.Int("adversary.tenants", 6, "how many walk beside each other")
	steps    = flag.Int("adversary.steps", 100, "actions of a walk")
	hints    = flag.String("adversary.hints", "", "weights of resources and verbs, like jobs=20,delete=9")
	shrinks  = flag.Duration("adversary.shrink", 5*time.Minute, "time to find the shortest sequence of a walk that fails")
	replayed = flag.String("adversary.replay", "", "file of a walk that failed, to walk it again")
	saved    = flag.String("adversary.out", "", "directory for walks that fail and for the logs")
)

const localDir = ".local-adversary"

type harness struct {
	cluster  *world.Cluster
	hints    weights
	requests atomic.Int64
	pid      int
}

func TestAdversary(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	h := &harness{hints: expect.Must(parseWeights(*hints))(t)}
	h.cluster = expect.Must(world.Open(ctx, localDir, os.Stderr, "--nodes", "64"))(t)
	t.Cleanup(func() { expect.NoError(t, h.cluster.Stop(ctx, os.Stderr)) })
	expect.Need(t, h.cluster.Local(), "%s is not that of a local control plane: the manager is configured for this test", h.cluster.Kubeconfig)
	// What cannot start gives its quota back while a walk is judged.
	restore, err := h.cluster.RestartManagerWith(ctx, os.Stderr, map[string]any{"startTimeout": startTimeout.String()})
	t.Cleanup(func() { expect.NoError(t, restore(ctx)) })
	expect.NoError(t, err)
	h.pid = expect.Must(h.cluster.PIDs())(t)[h.cluster.Manager()]
	if *replayed != "" {
		var actions []action
		expect.NoError(t, json.Unmarshal(expect.Must(os.ReadFile(*replayed))(t), &actions))
		h.report(t, h.walk(ctx, t, repeating(ctx, actions)))
		return
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1e6
	}
	t.Logf("-adversary.seed=%d", *seed)
	began := time.Now()
	t.Cleanup(func() {
		t.Logf("%d requests, %.1f a second", h.requests.Load(), float64(h.requests.Load())/time.Since(began).Seconds())
	})
	for tenant := range *tenants {
		t.Run(fmt.Sprintf("tenant %d", tenant), func(t *testing.T) {
			t.Parallel()
			h.tries(ctx, t, tenant, began.Add(*length))
		})
	}
}

func (h *harness) tries(ctx context.Context, t *testing.T, tenant int, until time.Time) {
	for n := 0; n == 0 || time.Now().Before(until) && !t.Failed(); n++ {
		t.Run(fmt.Sprintf("walk %d", n), func(t *testing.T) {
			r := rand.New(rand.NewPCG(*seed, uint64(tenant)<<32|uint64(n)))
			o := h.walk(ctx, t, func(w *walk) []action {
				return w.random(ctx, r, expect.Must(schemasOf(h.cluster.Config, w.resources))(t), *steps, h.hints)
			})
			if len(o.found) > 0 {
				h.report(t, h.shortened(ctx, t, o))
			}
		})
	}
}

type outcome struct {
	actions []action
	found   []finding
	log     []byte
}

// walk makes a world, takes the steps in it, which are returned, and judges.
func (h *harness) walk(ctx context.Context, t *testing.T, take func(*walk) []action) outcome {
	t.Helper()
	log := gbytes.NewBuffer() // Of several goroutines.
	w := newWalk(ctx, gomega.NewWithT(t), h.cluster, log)
	// Nobody waits for what is taken away.
	defer w.Unmake(ctx)
	defer w.ledger.Close()
	defer w.stop()
	made := time.Now()
	expect.NoError(t, within(ctx, 5*holding, w.starts("bystander")))
	w.unhindered = time.Since(made)
	actions := take(w)
	found, err := w.judge(ctx)
	h.requests.Add(w.sent.Load())
	if *saved != "" {
		expect.NoError(t, os.MkdirAll(*saved, 0o755))
		expect.NoError(t, os.WriteFile(filepath.Join(*saved, w.Namespace+".log"), log.Contents(), 0o644))
	}
	expect.NoError(t, err)
	pids := expect.Must(h.cluster.PIDs())(t)
	if _, err := os.Stat("/proc/" + strconv.Itoa(h.pid)); err != nil || pids[h.cluster.Manager()] != h.pid {
		found = append(found, finding{"the manager has ended", strconv.Itoa(h.pid)})
	}
	return outcome{actions, found, log.Contents()}
}

func repeating(ctx context.Context, actions []action) func(*walk) []action {
	return func(w *walk) []action {
		for _, a := range actions {
			w.do(ctx, a)
		}
		return actions
	}
}

// shortened finds a shorter sequence that breaks the same rule.
func (h *harness) shortened(ctx context.Context, t *testing.T, o outcome) outcome {
	t.Helper()
	rule, until := o.found[0].rule, time.Now().Add(*shrinks)
	t.Logf("%s, after %d actions; looking for fewer", o.found[0], len(o.actions))
	shrink(o.actions, func(actions []action) bool {
		again := h.walk(ctx, t, repeating(ctx, actions))
		fails := slices.ContainsFunc(again.found, func(f finding) bool { return f.rule == rule })
		if fails {
			o = again
		}
		return fails
	}, func() bool { return time.Now().Before(until) })
	return o
}

// report fails the test with what was found and how, and keeps it.
func (h *harness) report(t *testing.T, o outcome) {
	t.Helper()
	if len(o.found) == 0 {
		return
	}
	name := strings.NewReplacer("/", "-", " ", "").Replace(t.Name())
	if *saved != "" {
		expect.NoError(t, os.MkdirAll(*saved, 0o755))
		expect.NoError(t, os.WriteFile(filepath.Join(*saved, name+".json"), expect.Must(json.MarshalIndent(o.actions, "", " "))(t), 0o644))
		expect.NoError(t, os.WriteFile(filepath.Join(*saved, name+".log"), o.log, 0o644))
	}
	var what strings.Builder
	for _, f := range o.found {
		fmt.Fprintln(&what, f)
	}
	_, _ = io.WriteString(&what, script(o.actions))
	t.Errorf("%d actions of seed %d:\n%s", len(o.actions), *seed, what.String())
}

func parseWeights(text string) (weights, error) {
	out := weights{}
	for _, hint := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		name, amount, _ := strings.Cut(hint, "=")
		n, err := strconv.Atoi(amount)
		if err != nil {
			return nil, fmt.Errorf("hint %q: %w", hint, err)
		}
		out[name] = n
	}
	return out, nil
}

// shrink returns the shortest sequence that it finds in time which still fails, by leaving out ever smaller parts.
func shrink(actions []action, fails func([]action) bool, more func() bool) []action {
	for size := len(actions) / 2; size > 0; {
		shorter := false
		for from := 0; from < len(actions) && more(); {
			without := slices.Delete(slices.Clone(actions), from, min(from+size, len(actions)))
			if fails(without) {
				actions, shorter = without, true
			} else {
				from += size
			}
		}
		if !more() {
			break
		}
		if !shorter || size > len(actions)/2 {
			size /= 2
		}
	}
	return actions
}
