// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	workloadCRD = "workloads.kueue.x-k8s.io"
	jobSetCRD   = "jobsets.jobset.x-k8s.io"

	kueueMinor   = cluster.KueueMinor
	versionLabel = cluster.VersionLabel
)

// missingParts finds parts whose kinds are not served.
func missingParts(f *Facts) []Finding {
	var findings []Finding
	for _, needed := range []struct {
		part *part
		crd  string
	}{{kueuePart, workloadCRD}, {jobSetPart, jobSetCRD}, {trainerPart, trainjob.CRDName}} {
		if f.crd(needed.crd) != nil {
			continue
		}
		findings = append(findings, Finding{
			Severity: Error, Reason: "PartMissing", Object: object("CustomResourceDefinition", "", needed.crd),
			Problem:  fmt.Sprintf("%s is not installed: the cluster does not serve %s.", needed.part.name, needed.crd),
			Effect:   needed.part.without,
			Commands: []string{needed.part.install},
		})
	}
	return findings
}

// kueueVersion compares Kueue's release with the one that kueue-trainer is made for.
func kueueVersion(f *Facts) []Finding {
	crd := f.crd(workloadCRD)
	if crd == nil {
		return nil
	}
	found := f.version(kueuePart)
	release, err := version.ParseGeneric(found)
	switch {
	case !serves(crd, kueue.SchemeGroupVersion.Version):
		return []Finding{{
			Severity: Error, Reason: "KueueTooOld", Object: object("CustomResourceDefinition", "", workloadCRD),
			Problem:  fmt.Sprintf("Kueue does not serve Workloads of version %s.", kueue.SchemeGroupVersion.Version),
			Effect:   "kueue-trainer does not start.",
			Commands: []string{kueuePart.install},
		}}
	case err != nil:
		return []Finding{{
			Severity: Info, Reason: "KueueVersion", Object: "Kueue",
			Problem: "Kueue is there; its release is not written where doctor looks: the image of its Deployment, and label " + versionLabel + " of its ConfigMap.",
		}}
	case fmt.Sprintf("%d.%d", release.Major(), release.Minor()) != kueueMinor:
		return []Finding{{
			Severity: Warning, Reason: "KueueVersion", Object: "Kueue",
			Problem:  fmt.Sprintf("Kueue is %s; kueue-trainer is made for %s and tested with it only.", found, kueueMinor),
			Effect:   "What the two write into Workloads may differ, and TrainJobs be stopped and started for it.",
			Commands: []string{kueuePart.install},
		}}
	}
	return []Finding{{Severity: Info, Reason: "KueueVersion", Object: "Kueue", Problem: fmt.Sprintf("Kueue is %s.", found)}}
}

// version tells a part's release; empty where nothing says it.
func (f *Facts) version(p *part) string { return cluster.Release(f.deployment(p), f.configMap(p)) }

func serves(crd *apiextensionsv1.CustomResourceDefinition, name string) bool {
	return slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == name && v.Served
	})
}

// trainerGeneration tells which generation of Trainer the cluster serves.
func trainerGeneration(f *Facts) []Finding {
	crd := f.crd(trainjob.CRDName)
	if crd == nil {
		return nil
	}
	generation, err := trainjob.TrainerVersionOf(crd)
	if err != nil {
		return []Finding{{
			Severity: Error, Reason: "TrainerGeneration", Object: object("CustomResourceDefinition", "", crd.Name),
			Problem:  "The TrainJob CRD has neither spec.runtimePatches nor spec.podTemplateOverrides: it is of a Trainer before 2.1.",
			Effect:   "kueue-trainer is not ready, starts and stops nothing, and queued TrainJobs are refused.",
			Commands: []string{trainerPart.install},
		}}
	}
	return []Finding{{Severity: Info, Reason: "TrainerGeneration", Object: "Trainer", Problem: fmt.Sprintf("Trainer is of generation %s.", generation)}}
}
