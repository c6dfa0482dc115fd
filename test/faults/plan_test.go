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
	plans := crashes(c.writes)
	if c.scenario == preemption {
		plans = slices.Concat(plans, answers(c.writes), otherWriters(c.writes), webhookFaults(c.writes),
			heldWatches(), oldLists(h), flavorChanges(), cutWatches(), twoManagers())
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

// atAnyWrite are the faults of single writes.
var atAnyWrite = []plan{
	{family: "crash before send", action: crashBeforeSend},
	{family: "crash after commit", action: crashAfterCommit},
	{family: "response lost", action: loseResponse, together: true},
	// Of a manager that lost its lease, when its successor has gone on already.
	{family: "two leaders", name: "late ", action: arrivesLate},
}

func crashes(writes []writeRef) []plan {
	var plans []plan
	for _, w := range writes {
		for _, p := range atAnyWrite {
			p.name, p.at = p.name+w.String(), w
			plans = append(plans, p)
		}
	}
	return plans
}

// answers: the first write of each kind, and every write of a TrainJob, meets every answer.
func answers(writes []writeRef) []plan {
	var plans []plan
	for _, w := range writes {
		if w.n > 1 && w.resource != "trainjobs" {
			continue
		}
		for _, a := range apiAnswers {
			plans = append(plans, plan{family: "answers", name: a.name + " to " + w.String(), at: w, action: a.action, together: true})
		}
	}
	return plans
}

// otherWriters: a user changes the TrainJob just before our write arrives.
func otherWriters(writes []writeRef) []plan {
	var plans []plan
	for _, w := range writes {
		if w.job != low || !(w.resource == "trainjobs" || w.verb == "create") {
			continue
		}
		for _, p := range userEdits {
			p.family, p.name, p.at, p.together = "other writers", p.name+" before "+w.String(), w, true
			plans = append(plans, p)
		}
	}
	return plans
}

func webhookFaults(writes []writeRef) []plan {
	var plans []plan
	for _, w := range writes {
		if w.job != low || w.resource != "trainjobs" {
			continue
		}
		for _, owner := range []webhookOwner{ourWebhooks, trainersWebhooks, jobSetsWebhooks} {
			for _, fault := range []webhookFault{webhookDown, webhookSlow} {
				plans = append(plans, plan{
					family: "webhooks", name: fmt.Sprintf("%s of %s at %s", fault, owner, w), at: w, action: disturbWebhooks(owner, fault),
					// Retries from 5 ms on, each twice as late, reach holdFor at the tenth.
					slack: 10,
				})
			}
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

func heldWatches() []plan {
	var plans []plan
	for _, view := range views {
		around := hooks{before: hold(view), during: releaseLater(view)}
		if view == "configmaps" {
			// Read one by one, also by the webhook that the step's own request waits for.
			around = hooks{before: both(hold(view), releaseLater(view))}
		}
		for _, n := range changes {
			plans = append(plans, plan{
				family: "stale watch", name: fmt.Sprintf("%s held while %s", short(view), preemption.steps[n].name), step: n, around: around,
				// While the own write is not seen: a retry per second, and one for each
				// event of a job that starts.
				slack: 5,
			})
		}
	}
	return plans
}

// oldLists: the manager is started again with a list from before a step.
func oldLists(h *harness) []plan {
	var plans []plan
	for _, view := range views {
		// What is not watched is read one by one, never from an old list. Of the ConfigMaps one
		// is watched, by its name, and it is Kueue's.
		if !h.proxy.Watched(view) || view == "configmaps" {
			continue
		}
		for _, n := range changes {
			name := fmt.Sprintf("%s from before %s", short(view), preemption.steps[n].name)
			plans = append(plans, plan{family: "old list", name: name, step: n, around: restartWithOldList(view)})
		}
	}
	return plans
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
