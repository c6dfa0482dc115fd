// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// check is one question to the facts.
type check struct {
	// name says what is in order when the check finds nothing.
	name string
	// needs is what the facts must have for an answer.
	needs []Kind
	run   func(*Facts) []Finding
	// given is what there must be to look at.
	given []condition
}

// checks are all that doctor does, in the order in which an installation is built.
var checks = []check{
	{"Kueue, JobSet and Trainer are installed", []Kind{crds}, missingParts, nil},
	{"Kueue is of a version that kueue-trainer is made for", []Kind{crds, deployments, configMaps}, kueueVersion, nil},
	{"Trainer is of a known generation", []Kind{crds}, trainerGeneration, nil},
	{"kueue-trainer is running", []Kind{deployments, configMaps, leases, mutating, validating}, managerRunning, []condition{managerThere}},
	{"kueue-trainer has its permissions", []Kind{clusterRoles, roleBindings, deployments, mutating, validating}, permissions, []condition{managerThere}},
	{"the webhooks are installed", []Kind{crds, deployments, mutating, validating}, missingWebhooks, nil},
	{"the webhooks' Services have endpoints", []Kind{mutating, validating, services, endpointSlices}, webhookServices, nil},
	{"Kueue answers", []Kind{mutating, validating, flavorProbe}, silentWebhooks(0), nil},
	{"JobSet answers", []Kind{mutating, validating, jobSetProbe}, silentWebhooks(1), nil},
	{"Trainer and kueue-trainer answer", []Kind{mutating, validating, trainJobProbe}, silentWebhooks(2), nil},
	{"kueue-trainer's webhooks see every TrainJob, and see it last", []Kind{mutating, validating}, webhookPolicies, nil},
	{"kueue-trainer's policies are enforced", []Kind{admissionPolicies, deployments, mutating, validating}, unenforcedPolicies, []condition{managerThere}},
	{"one integration looks after TrainJobs", []Kind{trainJobProbe, mutating, validating, deployments}, integrations, []condition{probeAnswered}},
	{"Kueue's configuration can be read", []Kind{configMaps, deployments}, kueueConfiguration, []condition{kueueConfigMap}},
	{"Kueue's configuration lists TrainJob as external", []Kind{configMaps, mutating, validating, deployments, localQueues}, listed, []condition{managerThere, kueueConfigured}},
	{"Kueue leaves the manager's namespace alone", []Kind{configMaps, namespaceKind, mutating, validating, deployments}, managedManager, []condition{managerThere, kueueConfigured}},
	{"Kueue manages the namespaces that have queues", []Kind{configMaps, namespaceKind, localQueues}, unmanagedQueues, []condition{kueueConfigured}},
	{"Kueue runs with the configuration it has", []Kind{configMaps, deployments, trainJobProbe}, kueueRestart, []condition{kueueConfigured, probeAnswered}},
	{"Kueue has started with the configuration it has", []Kind{configMaps, deployments, pods}, kueueBehind, []condition{kueueConfigured}},
	{"feature gates are alike", []Kind{configMaps, mutating, validating, deployments}, featureGates, []condition{managerThere, kueueConfigured, managerConfigMap}},
	{"settings of the same name are alike", []Kind{configMaps, mutating, validating, deployments}, settings, []condition{managerThere, kueueConfigured, managerConfigMap}},
	{"every flavor has nodes", []Kind{flavors, nodes, clusterQueues, cohorts}, flavorsWithoutNodes, nil},
	{"every GPU node is in a flavor", []Kind{flavors, nodes, clusterQueues, cohorts}, nodesWithoutFlavor, nil},
	{"quotas are there as nodes", []Kind{flavors, nodes, clusterQueues, cohorts}, quotasAboveNodes, nil},
	{"the taints of GPU nodes are tolerated", []Kind{flavors, nodes, clusterQueues, cohorts, configMaps}, taints, nil},
	{"every LocalQueue leads to a ClusterQueue", []Kind{localQueues, clusterQueues}, localQueuesToNowhere, nil},
	{"ClusterQueues are active", []Kind{clusterQueues}, inactiveClusterQueues, nil},
	{"LocalQueues are not stopped", []Kind{localQueues}, stoppedLocalQueues, nil},
	{"no LocalQueue admits TrainJobs that are held", []Kind{localQueues}, queuesOfHeld, nil},
	{"no TrainJob is stuck", []Kind{trainJobs, workloads, jobSets, jobs, pods, localQueues, clusterQueues, flavors, nodes, schedulerView, crds}, stuckTrainJobs, nil},
	{"nothing holds an admission gate that nobody takes away", []Kind{trainJobs, jobSets, jobs, pods, mutating, validating, deployments, trainJobProbe}, leftGates, nil},
	{"every Workload of a TrainJob has its TrainJob", []Kind{trainJobs, workloads}, orphans, nil},
	{"the quota of pods that MultiKueue left goes with them", []Kind{workloads, pods, deployments, configMaps, leases, mutating, validating}, keptQuota, nil},
	{"no JobSet of a TrainJob is queued a second time", []Kind{jobSets, workloads}, countedTwice, nil},
	{"MultiKueue reaches its workers", []Kind{workerClusters}, lostWorkers, nil},
	{"MultiKueue's tokens for its workers last", []Kind{workerClusters, secrets}, endingAccess, nil},
	{"MultiKueue has its permissions in the workers", slices.Concat(dispatchKinds, []Kind{secrets}), missingRights, nil},
	{"MultiKueue takes TrainJobs to its workers", []Kind{workerClusters, configMaps, mutating, validating, deployments}, undispatched, []condition{inFleet(managerThere), inFleet(kueueConfigured)}},
	{"Trainer of the workers knows all fields", []Kind{workerClusters, crds}, olderTrainers, nil},
	{"the workers have the runtimes of TrainJobs", slices.Concat(dispatchKinds, []Kind{crds, clusterRuntimes, ownRuntimes}), workerRuntimes, nil},
	{"the workers have the queues of TrainJobs", dispatchKinds, workerQueues, nil},
	{"kueue-trainer of the workers is like that of the manager cluster", []Kind{workerClusters, deployments, configMaps, mutating, validating}, differingManagers, nil},
}

// dispatchKinds tell which TrainJobs go to which workers.
var dispatchKinds = []Kind{workerClusters, workerConfigs, trainJobs, localQueues, clusterQueues, admissionChecks}

// newReport makes every check for which the facts are there; of the others it tells why
// they could not be made.
func newReport(f *Facts) Report {
	r := Report{Findings: []Finding{}, Passed: []string{}, Unseen: []Unseen{}}
	for _, c := range checks {
		if unread := c.unread(f); len(unread) > 0 {
			r.leaveOut(c.name, unread)
			continue
		}
		if reason := c.blocked(f); reason != "" {
			r.Findings = append(r.Findings, notChecked(fmt.Sprintf("whether %s, because %s", c.name, reason)))
			continue
		}
		found := c.run(f)
		r.Checks++
		r.Findings = append(r.Findings, found...)
		if !slices.ContainsFunc(found, keepsFromPassing) {
			r.Passed = append(r.Passed, c.name)
		}
	}
	for i := range f.Workers {
		r.leaveOutWorker(&f.Workers[i])
	}
	r.Errors, r.Warnings = count(r.Findings, Error), count(r.Findings, Warning)
	sortFindings(r.Findings)
	return r
}

// notChecked is about what doctor cannot know, without a fault of anybody.
func notChecked(what string) Finding {
	return Finding{Severity: Info, Reason: "NotChecked", Object: "Check", Problem: fmt.Sprintf("Could not check %s.", what)}
}

// keepsFromPassing is for what is wrong, and what is not known.
func keepsFromPassing(f Finding) bool { return f.Severity > Info || f.Reason == "NotChecked" }

// blocked tells what there is not to look at, or is empty.
func (c check) blocked(f *Facts) string {
	for _, missing := range c.given {
		if reason := missing(f); reason != "" {
			return reason
		}
	}
	return ""
}

// unread returns what a check needs and could not be read.
func (c check) unread(f *Facts) []Unseen {
	var unread []Unseen
	for _, kind := range c.needs {
		if err := f.Unread[kind]; err != nil {
			unread = append(unread, unreadKind(kind, err))
		}
	}
	return unread
}

func unreadKind(kind Kind, err error) Unseen {
	if forRights(err) {
		return Unseen{Kind: string(kind), Reason: "you may not " + kind.verb(), forRights: true}
	}
	return Unseen{Kind: string(kind), Reason: err.Error()}
}

// leaveOutWorker notes what is not known of a worker. That nothing leads there is no fault.
func (r *Report) leaveOutWorker(w *Worker) {
	name := "worker cluster " + w.Name
	switch {
	case w.NoContext:
		r.Findings = append(r.Findings, notChecked(fmt.Sprintf("whether %s goes with this cluster: %s", name, w.Untold)))
	case w.Untold != nil:
		r.leaveOut(name+" goes with this cluster", []Unseen{{Kind: name, Reason: w.Untold.Error()}})
	default:
		for _, kind := range slices.Sorted(maps.Keys(w.Unread)) {
			u := unreadKind(kind, w.Unread[kind])
			u.Kind += " of " + name
			r.leaveOut(name+" goes with this cluster", []Unseen{u})
		}
	}
}

// notAllowed is how the API server says that somebody has no right to something.
var notAllowed = regexp.MustCompile(`User ".*" cannot [a-z]+ resource "`)

// forRights reports whether the user is not allowed something. Quotas, policies and webhooks
// forbid, too, whatever rights one has.
func forRights(err error) bool {
	return apierrors.IsForbidden(err) && notAllowed.MatchString(err.Error())
}

// leaveOut notes a check that cannot be made, at every kind that it needs.
func (r *Report) leaveOut(check string, unread []Unseen) {
	r.NotMade++
	for _, u := range unread {
		at := slices.IndexFunc(r.Unseen, func(o Unseen) bool { return o.Kind == u.Kind })
		if at < 0 {
			at, r.Unseen = len(r.Unseen), append(r.Unseen, u)
		}
		r.Unseen[at].Checks = append(r.Unseen[at].Checks, check)
	}
}
