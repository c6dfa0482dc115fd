// SPDX-License-Identifier: Apache-2.0

package doctor

var integrationChecks = []check{{
	inOrder: "one integration looks after TrainJobs",
	looksAt: []Kind{trainJobProbe, mutating, validating, deployments}, given: []condition{probeAnswered}, wrong: integrations,
	id: "NoIntegration", severity: Error, when: "neither kueue-trainer nor Kueue's in-tree integration takes TrainJobs into queues",
	object:  object("Deployment", managerPart.Namespace, managerPart.Deployment),
	problem: "Nobody looks after TrainJobs: kueue-trainer is not installed, and Kueue's in-tree integration is off.",
	effect:  "A TrainJob in a queue runs at once, without quota.", commands: []string{"{all}"},
}, {
	id: "BothIntegrations", severity: Error, when: "both do: see [the in-tree integration](in-tree.md#both-at-once)", object: "Kueue",
	problem: "Kueue's in-tree TrainJob integration is active, and kueue-trainer is installed as well.",
	effect:  "kueue-trainer stands aside: all TrainJobs are in the in-tree integration's hands.",
	advice:  "To keep the in-tree integration, uninstall kueue-trainer as docs/in-tree.md says. To go over to kueue-trainer:", commands: restarted,
}, {
	id: "WebhookWithoutEffect", severity: Error, when: "all webhooks are there, and a queued TrainJob is not suspended",
	object:  object("MutatingWebhookConfiguration", "", managerPart.mutating),
	problem: "A TrainJob in a queue is not suspended when it is made, though kueue-trainer is installed.",
	effect:  "New TrainJobs run at once, without quota, until the manager sees them.", commands: []string{"{logs}", "{install}"},
}, {
	id: "InTree", severity: Info, when: "the in-tree integration alone takes them", object: "Kueue",
	problem: "Kueue's in-tree integration looks after TrainJobs; kueue-trainer is not installed.",
}}

// integrations finds none or two that look after TrainJobs, by what the API server makes
// of a queued one.
func integrations(f *Facts, found func(hit)) {
	h := hit{values: append(f.of(managerPart), "all", f.apply("default"))}
	switch answer, installed := f.integrates(), f.managerInstalled(); {
	case answer == inTree && installed:
		found(h.as("BothIntegrations", Error))
	case answer == inTree:
		found(h.as("InTree", Info))
	case answer == nobody && installed:
		found(h.as("WebhookWithoutEffect", Error))
	case answer == nobody:
		found(h)
	}
}
