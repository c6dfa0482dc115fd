// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// condition tells what is missing for an answer to a check, or is empty.
type condition func(*Facts) string

// managerThere is for checks of kueue-trainer, in whatever state it is.
func managerThere(f *Facts) string {
	if !f.managerInstalled() {
		return "kueue-trainer is not installed"
	}
	return ""
}

// kueueConfigMap and managerConfigMap are for checks of a configuration.
func kueueConfigMap(f *Facts) string { return f.withoutConfigMap(kueuePart) }

func managerConfigMap(f *Facts) string { return f.withoutConfigMap(managerPart) }

func (f *Facts) withoutConfigMap(p *part) string {
	if f.configMap(p) != nil {
		return ""
	}
	return fmt.Sprintf("there is no ConfigMap %s/%s: %s is not installed, or keeps its configuration elsewhere", f.at(p).Namespace, f.at(p).ConfigMap, p.Name)
}

// kueueConfigured is for checks that look into Kueue's configuration.
func kueueConfigured(f *Facts) string {
	if _, err := f.kueueSettings(); err != nil {
		return err.Error()
	}
	return ""
}

// probeAnswered is for checks that judge by what the API server made of a TrainJob.
func probeAnswered(f *Facts) string {
	if f.integrates() == unknown {
		return "the API server gave no answer to " + string(trainJobProbe)
	}
	return ""
}

// inFleet is a condition for checks that ask nothing of a cluster without workers of MultiKueue.
func inFleet(c condition) condition {
	return func(f *Facts) string {
		if len(f.MultiKueueClusters) == 0 {
			return ""
		}
		return c(f)
	}
}
