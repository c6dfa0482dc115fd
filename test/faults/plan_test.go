// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// plan is one fault put into one run of the scenario.
type plan struct {
	family, name string
	scenario     *scenario
	clean        *clean
	// at is the write that action is done to; around is what is done around a step.
	at     writeRef
	action action
	step   int
	around hooks

	// together: the fault touches this run's objects alone, so that others may go on beside it.
	together bool
	// slack is how many writes of each kind more than in the clean run are fine.
	slack int
	// managers is the number of processes that write, each as much as in the clean run; 0 means 1.
	managers int
	// restarts is how often what the plan's user does may have a job started again.
	restarts int
	// anyFlavorVersion: a pod may match a flavor as it was before its latest change.
	anyFlavorVersion bool
	// differs are sections of the end state that what the plan's user does changes.
	differs []string
}

type hook func(context.Context, *run) error

// hooks of a step: before its change, right after it, and when all has settled.
type hooks struct{ before, during, after hook }

func (p plan) String() string { return p.family + "/" + p.name }

// pattern selects this plan alone on go test's command line, with the clean runs that plans are made from.
func (p plan) pattern() string {
	name := regexp.QuoteMeta(strings.ReplaceAll(p.name, " ", "_"))
	return fmt.Sprintf("^TestFaults$/^clean$|^TestFaults$/^%s$/^%s$", strings.ReplaceAll(p.family, " ", "_"), strings.ReplaceAll(name, "/", "$/^"))
}

// A write that was crashed, refused or lost is made again; what was decided before it is
// decided again by the next reconcile, which may overlap with the events of the first.
const retrySlack = 3

// plansFor makes all plans from what a clean run writes: every fault for preemption, and
// those of single writes for what comes about in other ways.
func plansFor(h *harness, c *clean) []plan {
	plans := atWrites(c.writes)
	if c.scenario == preemption {
		plans = append(plans, atSteps(h.proxy.Watched)...)
	}
	for i := range plans {
		plans[i].scenario, plans[i].clean = c.scenario, c
		plans[i].slack += retrySlack
	}
	return plans
}

// sample returns n plans that seed chooses: one of each family first, then any.
func sample(plans []plan, n int, seed uint64) []plan {
	random := rand.New(rand.NewPCG(seed, 0))
	shuffled := slices.Clone(plans)
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var chosen, rest []plan
	families := map[string]bool{}
	for _, p := range shuffled {
		if families[p.family] {
			rest = append(rest, p)
			continue
		}
		families[p.family] = true
		chosen = append(chosen, p)
	}
	chosen = append(chosen, rest...)
	return chosen[:min(n, len(chosen))]
}

// writeFaults are the faults of single writes: what is done to which of them. A plan's name is
// made of that of what is done and of the write.
var writeFaults = []struct {
	family, name string
	together     bool
	// of picks the writes; nil means all.
	of   func(writeRef) bool
	done []plan
}{
	{family: "crash before send", name: "%s%s", done: []plan{{action: crashBeforeSend}}},
	{family: "crash after commit", name: "%s%s", done: []plan{{action: crashAfterCommit}}},
	{family: "response lost", name: "%s%s", done: []plan{{action: loseResponse}}, together: true},
	// The write of a manager that lost its lease arrives when its successor has gone on already.
	{family: "two leaders", name: "%s %s", done: []plan{{name: "late", action: action{do: arriveLate, end: lose}}}},
	// The first write of each kind, and every write of a TrainJob, meets every answer.
	{family: "answers", name: "%s to %s", of: func(w writeRef) bool { return w.job != staged && (w.n == 1 || w.resource == "trainjobs") }, done: apiAnswers, together: true},
	// A user changes the TrainJob just before our write arrives.
	{family: "other writers", name: "%s before %s", of: func(w writeRef) bool { return ofLow(w) || w.job == low && w.verb == "create" }, done: userEdits, together: true},
	{family: "webhooks", name: "%s at %s", of: ofLow, done: webhookFaults()},
}

func ofLow(w writeRef) bool { return w.job == low && w.resource == "trainjobs" }

func atWrites(writes []writeRef) []plan {
	var plans []plan
	for _, fault := range writeFaults {
		for _, w := range writes {
			for _, p := range fault.done {
				p.family, p.name, p.at, p.together = fault.family, fmt.Sprintf(fault.name, p.name, w), w, fault.together
				if fault.of == nil || fault.of(w) {
					plans = append(plans, p)
				}
			}
		}
	}
	return plans
}

func webhookFaults() []plan {
	var plans []plan
	for _, owner := range []webhookOwner{ourWebhooks, trainersWebhooks, jobSetsWebhooks} {
		for _, fault := range []webhookFault{webhookDown, webhookSlow} {
			// Retries from 5 ms on, each twice as late, reach holdFor at the tenth.
			plans = append(plans, plan{name: fmt.Sprintf("%s of %s", fault, owner), action: disturbWebhooks(owner, fault), slack: 10})
		}
	}
	return plans
}

const trainJobs, workloads, resourceFlavors = "trainjobs.trainer.kubeflow.org", "workloads.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io"

var views = []string{trainJobs, workloads, "jobsets.jobset.x-k8s.io", "jobs.batch", resourceFlavors, "configmaps"}

var changes = []int{lowStarts, highPreempts, flavorOpens}

// aroundSteps are the plans of what goes on around one step of preemption.
var aroundSteps = []plan{
	{
		family: "stale watch", name: "labels of a flavor change, resourceflavors held while " + preemption.steps[flavorOpens].name, step: flavorOpens,
		around:           hooks{before: both(hold(resourceFlavors), changeFlavor(`"8"`)), during: releaseLater(resourceFlavors)},
		anyFlavorVersion: true, differs: []string{"low/trainjob/patches", "low/pod/"},
	},
	{
		family: "stale watch", name: "labels of a flavor change before " + preemption.steps[flavorOpens].name, step: flavorOpens,
		around: hooks{before: changeFlavor(`"8"`)}, differs: []string{"low/trainjob/patches", "low/pod/"},
	},
	{
		family: "unobserved", name: "a waiting Workload is deactivated and activated",
		step: highPreempts, around: unobserved(workloads, activate(false), activate(true)), differs: []string{"low/workload/conditions"},
	},
	{
		family: "unobserved", name: "a waiting TrainJob changes queues and back",
		step: highPreempts, around: unobserved(trainJobs, setQueue("other"), setQueue("queue")),
	},
	{
		family: "unobserved", name: "labels of a flavor change and back",
		step: highPreempts, around: unobserved(resourceFlavors, changeFlavor(`"8"`), changeFlavor("null")),
	},
	{family: "two leaders", name: "two processes, the second one slow", around: hooks{before: secondManager(0, managerDelay)}, managers: 2},
	{family: "two leaders", name: "two processes, the first one slow", around: hooks{before: secondManager(managerDelay, 0)}, managers: 2},
}

func atSteps(watched func(view string) bool) []plan {
	plans := slices.Clone(aroundSteps)
	for _, view := range views {
		short, _, _ := strings.Cut(view, ".")
		around := hooks{before: hold(view), during: releaseLater(view)}
		if view == "configmaps" {
			// Read one by one, also by the webhook that the step's own request waits for.
			around = hooks{before: both(hold(view), releaseLater(view))}
		}
		for _, n := range changes {
			step := preemption.steps[n].name
			// While the own write is not seen: a retry per second, and one for each event of a job that starts.
			plans = append(plans, plan{family: "stale watch", name: short + " held while " + step, step: n, around: around, slack: 5})
			// What is not watched is read one by one, never from an old list. Of the ConfigMaps one
			// is watched, by its name, and it is Kueue's.
			if watched(view) && view != "configmaps" {
				plans = append(plans, plan{family: "old list", name: short + " from before " + step, step: n, around: restartWithOldList(view)})
			}
		}
	}
	return plans
}

// userEdits are what a user does to TrainJob low at the wrong time, and what that rightly changes.
var userEdits = []plan{
	{
		name: "an entry with unknown fields and zeros", action: editFirst(addEntry),
		// Its containers change, so it gets another Workload or another version of it.
		slack: 5, differs: []string{"low/trainjob/patches", "low/workload/"},
	},
	{name: "labels", action: editFirst(set("vision", "metadata", "labels", "example.com/team")), differs: []string{"low/trainjob/labels"}},
	{
		name: "a resume", action: editFirst(set(false, "spec", "suspend")), slack: 3,
		// Its pod can be placed and bound before the suspension that answers it arrives.
		restarts: 1,
	},
	{
		name: "another job of the same name", action: editFirst(recreate),
		// Everything is written once more, for another Workload that was never evicted.
		slack: 5, differs: []string{"low/workload/conditions"},
	},
}

// The entries that are added say things that Trainer's types do not hold, or hold only as absent.
const (
	addedFuture = `"future": {"zero": 0, "empty": "", "no": false, "list": []}`
	addedSpec   = `{
    "volumes": [{"name": "scratch", "emptyDir": {}}],
    "containers": [{"name": "node", "env": [{"name": "EMPTY", "value": ""}],
      "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "readOnly": false}]}]}`
)

// added are the entries by the field that takes them.
var added = map[string]string{
	"runtimePatches": `{"manager": "example.com/added", "time": "2026-01-01T00:00:00Z", ` + addedFuture + `,
  "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": ` + addedSpec + `}}}}]}}}}`,
	"podTemplateOverrides": `{"targetJobs": [{"name": "node"}], ` + addedFuture + `, "spec": ` + addedSpec + `}`,
}

// addEntry adds a patch entry, which Trainer refuses while the job runs.
func addEntry(ctx context.Context, r *run) error {
	err := r.edit(ctx, func(job *unstructured.Unstructured) error {
		field, entries := history.Entries(job)
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(added[field]), &entry); err != nil {
			return err
		}
		return unstructured.SetNestedSlice(job.Object, append(entries, entry), "spec", field)
	})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

func set(value any, fields ...string) hook {
	return func(ctx context.Context, r *run) error {
		return r.edit(ctx, func(job *unstructured.Unstructured) error {
			return unstructured.SetNestedField(job.Object, value, fields...)
		})
	}
}

func setQueue(queue string) hook { return set(queue, "metadata", "labels", kit.QueueLabel) }

// edit changes TrainJob low as its user, without Go types that could lose a field.
func (r *run) edit(ctx context.Context, change func(*unstructured.Unstructured) error) error {
	job := world.NewTrainJob()
	job.SetNamespace(r.Namespace)
	job.SetName(low)
	var wrong error
	if err := world.TryChange(ctx, r, job, func() { wrong = change(job) }); err != nil || wrong != nil {
		return errors.Join(err, wrong)
	}
	rv, err := strconv.ParseUint(job.GetResourceVersion(), 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.userWrites[rv] = true
	return err
}

// recreate deletes TrainJob low and creates another one as soon as nothing of the first is left. Trainer calls the new
// one complete by the JobSet of the old one otherwise, which is not what this is about.
func recreate(ctx context.Context, r *run) error {
	if err := r.Delete(ctx, r.Job(low).Obj()); err != nil {
		return err
	}
	left := []client.Object{r.jobSet(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: low + "-runtime-snapshot"}}}
	for _, obj := range left {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(r.Get(ctx, client.ObjectKeyFromObject(obj), obj)), nil
		})
		if err != nil {
			return fmt.Errorf("%T %s is still there: %w", obj, obj.GetName(), err)
		}
	}
	return r.Create(ctx, r.job(low, low, training).Obj())
}

func activate(active bool) hook {
	return func(ctx context.Context, r *run) error {
		r.Activate(ctx, low, active)
		return nil
	}
}

// changeFlavor sets another node label of flavor B, which GPU nodes carry, or with null takes it away again.
func changeFlavor(count string) hook {
	return func(ctx context.Context, r *run) error {
		return r.merge(ctx, kit.Flavor(r.Name("b"), nil), fmt.Sprintf(`{"spec":{"nodeLabels":{"nvidia.com/gpu.count":%s}}}`, count))
	}
}
