// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// plan is one fault put into one run of the scenario.
type plan struct {
	family, name string
	scenario     *scenario
	// clean is the scenario without the fault.
	clean *clean
	// at is the write that action is done to; around is what is done around a step.
	at     writeRef
	action action
	step   int
	around hooks

	// together: the fault touches this run's objects alone, so that others may go on
	// beside it.
	together bool
	// slack is how many writes of each kind more than in the clean run are fine.
	slack int
	// managers is the number of processes that write, each as much as in the clean
	// run; 0 means 1.
	managers int
	// restarts is how often what the plan's user does may have a job started again.
	restarts int
	// anyFlavorVersion: a pod may match a flavor as it was before its latest change.
	anyFlavorVersion bool
	// differs are sections of the end state that what the plan's user does changes.
	differs []string
}

// hook is done around a step.
type hook func(context.Context, *run) error

// hooks of a step: before its change, right after it, and when all has settled.
type hooks struct{ before, during, after hook }

func (p plan) String() string { return p.family + "/" + p.name }

// pattern selects this plan alone on go test's command line, with the clean runs that
// plans are made from.
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
	of           func(writeRef) bool
	done         []plan
}{
	{family: "crash before send", name: "%s%s", of: every, done: []plan{{action: crashBeforeSend}}},
	{family: "crash after commit", name: "%s%s", of: every, done: []plan{{action: crashAfterCommit}}},
	{family: "response lost", name: "%s%s", of: every, done: []plan{{action: loseResponse}}, together: true},
	// The write of a manager that lost its lease arrives when its successor has gone on already.
	{family: "two leaders", name: "%s %s", of: every, done: []plan{{name: "late", action: arrivesLate}}},
	// The first write of each kind, and every write of a TrainJob, meets every answer.
	{family: "answers", name: "%s to %s", of: firstOrOfTrainJob, done: apiAnswers, together: true},
	// A user changes the TrainJob just before our write arrives.
	{family: "other writers", name: "%s before %s", of: aboutLow, done: userEdits, together: true},
	{family: "webhooks", name: "%s at %s", of: ofLow, done: webhookFaults()},
}

func every(writeRef) bool { return true }

func firstOrOfTrainJob(w writeRef) bool {
	return w.job != staged && (w.n == 1 || w.resource == "trainjobs")
}

func ofLow(w writeRef) bool { return w.job == low && w.resource == "trainjobs" }

func aboutLow(w writeRef) bool { return ofLow(w) || w.job == low && w.verb == "create" }

// atWrites makes the plans of single writes.
func atWrites(writes []writeRef) []plan {
	var plans []plan
	for _, fault := range writeFaults {
		for _, w := range writes {
			for _, p := range fault.done {
				p.family, p.name, p.at, p.together = fault.family, fmt.Sprintf(fault.name, p.name, w), w, fault.together
				if fault.of(w) {
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

// views are the resources that an integration may look at.
var views = []string{
	trainJobs, workloads, "jobsets.jobset.x-k8s.io", "jobs.batch", resourceFlavors, "configmaps",
}

func short(resource string) string {
	name, _, _ := strings.Cut(resource, ".")
	return name
}

// changes are the steps of preemption that change what the manager sees.
var changes = []int{lowStarts, highPreempts, flavorOpens}

// atSteps makes the plans of what goes on around a step of preemption.
func atSteps(watched func(view string) bool) []plan {
	plans := slices.Concat(flavorChanges(), cutWatches(), twoManagers())
	for _, view := range views {
		for _, n := range changes {
			plans = append(plans, held(view, n))
			// What is not watched is read one by one, never from an old list. Of the ConfigMaps one
			// is watched, by its name, and it is Kueue's.
			if watched(view) && view != "configmaps" {
				name := fmt.Sprintf("%s from before %s", short(view), preemption.steps[n].name)
				plans = append(plans, plan{family: "old list", name: name, step: n, around: restartWithOldList(view)})
			}
		}
	}
	return plans
}

// held: a view is held back across a step.
func held(view string, n int) plan {
	around := hooks{before: hold(view), during: releaseLater(view)}
	if view == "configmaps" {
		// Read one by one, also by the webhook that the step's own request waits for.
		around = hooks{before: both(hold(view), releaseLater(view))}
	}
	return plan{
		family: "stale watch", name: fmt.Sprintf("%s held while %s", short(view), preemption.steps[n].name), step: n, around: around,
		// While the own write is not seen: a retry per second, and one for each event of a job that starts.
		slack: 5,
	}
}

const trainJobs, workloads, resourceFlavors = "trainjobs.trainer.kubeflow.org", "workloads.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io"

func flavorChanges() []plan {
	step, differs := preemption.steps[flavorOpens].name, []string{"low/trainjob/patches", "low/pod/"}
	return []plan{
		{
			family: "stale watch", name: "labels of a flavor change, resourceflavors held while " + step, step: flavorOpens,
			around:           hooks{before: both(hold(resourceFlavors), changeFlavor(`"8"`)), during: releaseLater(resourceFlavors)},
			anyFlavorVersion: true, differs: differs,
		},
		{
			family: "stale watch", name: "labels of a flavor change before " + step, step: flavorOpens,
			around: hooks{before: changeFlavor(`"8"`)}, differs: differs,
		},
	}
}

// cutWatches: something changes and changes back while nobody sees it.
func cutWatches() []plan {
	plans := []plan{
		{
			name: "a running Workload is deactivated and activated",
			step: lowStarts, around: unobserved(workloads, activate(false), activate(true)),
			// Kueue may or may not have evicted it in between.
			differs: []string{"low/workload/conditions"}, slack: 3,
		},
		{
			name: "a waiting Workload is deactivated and activated",
			step: highPreempts, around: unobserved(workloads, activate(false), activate(true)), differs: []string{"low/workload/conditions"},
		},
		{
			name: "a waiting TrainJob changes queues and back",
			step: highPreempts, around: unobserved(trainJobs, setQueue("other"), setQueue("queue")),
		},
		{
			name: "labels of a flavor change and back",
			step: highPreempts, around: unobserved(resourceFlavors, changeFlavor(`"8"`), changeFlavor("null")),
		},
	}
	for i := range plans {
		plans[i].family = "unobserved"
	}
	return plans
}

func twoManagers() []plan {
	return []plan{
		{family: "two leaders", name: "two processes, the second one slow", around: hooks{before: secondManager(0, managerDelay)}, managers: 2},
		{family: "two leaders", name: "two processes, the first one slow", around: hooks{before: secondManager(managerDelay, 0)}, managers: 2},
	}
}
