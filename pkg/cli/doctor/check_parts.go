// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var partChecks = []check{{
	inOrder: "Kueue, JobSet and Trainer are installed", looksAt: []Kind{crds},
	wrong: func(f *Facts, found func(hit)) {
		for _, p := range parts {
			if p.CRD != "" && f.crd(p.CRD) == nil {
				found(about("CustomResourceDefinition", "", p.CRD, f.of(p)...))
			}
		}
	},
	ID: "PartMissing", Severity: Error, When: "the cluster does not serve the part's kinds",
	problem: "{part} is not installed: the cluster does not serve {name}.",
	effect:  "{without}", commands: []string{"{install}"},
}, {
	inOrder: "Kueue is of a version that kueue-trainer is made for", looksAt: []Kind{crds, deployments, configMaps}, wrong: kueueVersion,
	ID: "KueueTooOld", Severity: Error, When: "Kueue does not serve Workloads of `v1beta2`", object: object("CustomResourceDefinition", "", cluster.Kueue.CRD),
	problem: "Kueue does not serve Workloads of version " + kueue.SchemeGroupVersion.Version + ".",
	effect:  "kueue-trainer does not start.", advice: "{reinstall}", commands: []string{"{install}"},
}, {
	ID: "KueueVersion", Severity: Warning, When: "Kueue is not " + cluster.KueueMinor + "; told by its image, or by the label that Helm charts set", object: "Kueue",
	problem: "Kueue is {release}; kueue-trainer is made for " + cluster.KueueMinor + " and tested with it only.",
	effect: "What the two write into Workloads may differ, and TrainJobs be stopped and started for it. " +
		"Feature gates that Kueue's configuration does not name are as in " + cluster.KueueMinor + " for TrainJobs.",
	advice: "{reinstall}", commands: []string{"{install}"},
}, {
	ID: "KueueVersion", Severity: Info, When: "always: which release Kueue is, as far as that is told", object: "Kueue",
	problem: "Kueue is {release}.",
}, {
	inOrder: "Trainer is of a known generation", looksAt: []Kind{crds},
	wrong: func(f *Facts, found func(hit)) {
		crd := f.crd(trainjob.CRDName)
		if crd == nil {
			return
		}
		if generation, err := trainjob.TrainerVersionOf(crd); err == nil {
			found(hit{values: []any{"generation", generation}}.as("TrainerGeneration", Info))
		} else {
			found(hit{values: f.of(trainerPart)})
		}
	},
	ID: "TrainerGeneration", Severity: Error, When: "the TrainJob CRD is of a Trainer before 2.1", object: object("CustomResourceDefinition", "", trainjob.CRDName),
	problem: "The TrainJob CRD has neither spec.runtimePatches nor spec.podTemplateOverrides: it is of a Trainer before 2.1.",
	effect:  "kueue-trainer is not ready, starts and stops nothing, and queued TrainJobs are refused.", advice: "{reinstall}", commands: []string{"{install}"},
}, {
	ID: "TrainerGeneration", Severity: Info, When: "always: which generation Trainer is", object: "Trainer",
	problem: "Trainer is of generation {generation}.",
}, {
	inOrder: "Trainer's controller reads what its CRDs have", looksAt: []Kind{crds, deployments},
	wrong: func(f *Facts, found func(hit)) {
		if f.trainerBefore(f.generation()) {
			found(hit{values: append(f.of(trainerPart), "release", f.trainerRelease(), "generation", f.generation())})
		}
	},
	ID: "TrainerBehind", Severity: Error, When: "the CRDs are of a newer Trainer than the controller; told by its image",
	object:  object("Deployment", trainerPart.Namespace, trainerPart.Deployment),
	problem: "Trainer's CRDs are of {generation}, and its controller is still {release}, which reads TrainJobs otherwise.",
	effect:  "No TrainJob in a queue starts; after ten minutes an admitted one gives its quota back. Where kueue-trainer has started since, some may start, and not as they were admitted.",
	advice:  "Finish the upgrade of Trainer. {reinstall}", commands: []string{"{install}"},
}}

// trainerRelease is that of the controller; its ConfigMaps tell nothing of it.
func (f *Facts) trainerRelease() string { return cluster.Release(f.deployment(trainerPart), nil) }

// trainerBefore reports whether Trainer's controller is older than a generation. An image of one's own tells nothing.
func (f *Facts) trainerBefore(generation trainjob.TrainerVersion) bool {
	release, err := version.ParseGeneric(f.trainerRelease())
	return err == nil && generation != 0 && release.Major() == 2 && release.LessThan(version.MustParseGeneric(generation.String()))
}

// kueueVersion compares Kueue's release with the one that kueue-trainer is made for.
func kueueVersion(f *Facts, found func(hit)) {
	crd := f.crd(cluster.Kueue.CRD)
	if crd == nil {
		return
	}
	is := f.version(kueuePart)
	minor := cluster.MinorOf(is)
	h := hit{values: append(f.of(kueuePart), "release", is)}
	switch {
	case !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == kueue.SchemeGroupVersion.Version && v.Served
	}):
		found(h)
	case minor == "":
		h.Problem = "Kueue is there; its release is not written where doctor looks: the image of its Deployment, and label " + cluster.VersionLabel + " of its ConfigMap."
		found(h.as("KueueVersion", Info))
	case minor != cluster.KueueMinor:
		found(h.as("KueueVersion", Warning))
	default:
		found(h.as("KueueVersion", Info))
	}
}

// version tells a part's release; empty where nothing says it.
func (f *Facts) version(p *part) string { return cluster.Release(f.deployment(p), f.configMap(p)) }

var integrationChecks = []check{{
	inOrder: "one integration looks after TrainJobs",
	looksAt: []Kind{trainJobProbe, mutating, validating, deployments}, given: []condition{probeAnswered},
	wrong: func(f *Facts, found func(hit)) {
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
	},
	ID: "NoIntegration", Severity: Error, When: "neither kueue-trainer nor Kueue's in-tree integration takes TrainJobs into queues",
	object:  object("Deployment", managerPart.Namespace, managerPart.Deployment),
	problem: "Nobody looks after TrainJobs: kueue-trainer is not installed, and Kueue's in-tree integration is off.",
	effect:  "A TrainJob in a queue runs at once, without quota.", commands: []string{"{all}"},
}, {
	ID: "BothIntegrations", Severity: Error, When: "both do: see [the in-tree integration](in-tree.md#both-at-once)", object: "Kueue",
	problem: "Kueue's in-tree TrainJob integration is active, and kueue-trainer is installed as well.",
	effect:  "kueue-trainer stands aside: all TrainJobs are in the in-tree integration's hands.",
	advice:  "To keep the in-tree integration, uninstall kueue-trainer as docs/in-tree.md says. To go over to kueue-trainer:", commands: restarted,
}, {
	ID: "WebhookWithoutEffect", Severity: Error, When: "all webhooks are there, and a queued TrainJob is not suspended",
	object:  object("MutatingWebhookConfiguration", "", managerPart.mutating),
	problem: "A TrainJob in a queue is not suspended when it is made, though kueue-trainer is installed.",
	effect:  "New TrainJobs run at once, without quota, until the manager sees them.", commands: []string{"{logs}", "{install}"},
}, {
	ID: "InTree", Severity: Info, When: "the in-tree integration alone takes them", object: "Kueue",
	problem: "Kueue's in-tree integration looks after TrainJobs; kueue-trainer is not installed.",
}}
