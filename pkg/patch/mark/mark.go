// SPDX-License-Identifier: Apache-2.0

// Package mark tells our part of what a TrainJob patches its runtime with from everybody
// else's.
package mark

import "github.com/kueue-trainer/kueue-trainer/pkg/trainjob"

const (
	// Manager is the key of our entry. It is the one that Kueue's in-tree
	// integration uses, so that a cluster can migrate both ways.
	Manager = "kueue.x-k8s.io/manager"

	// Annotation marks our overrides, with Manager as its value: overrides have no
	// owner, so it stands among the annotations of the pods.
	Annotation = "kueue-trainer.dev/manager"
)

// Override reports whether an override of Trainer 2.1 carries our mark. One that cannot
// be read does not.
func Override(o trainjob.PodTemplateOverride) bool {
	var marked struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return o.Decode(&marked) == nil && marked.Metadata.Annotations[Annotation] == Manager
}
