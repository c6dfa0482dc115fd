// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// withoutOurs leaves our overrides out of a manifest.
func withoutOurs(layers []overlay.Layer) (others []overlay.Layer, warnings []string) {
	for _, l := range layers {
		if l.Ours {
			warnings = append(warnings, leftOut(l.Path))
		} else {
			others = append(others, l)
		}
	}
	return others, slices.Compact(warnings) // An override for several jobs has several layers.
}

// withoutOurEntry leaves our entry out of a manifest.
func withoutOurEntry(patches []patch) (others []patch, warnings []string) {
	for _, p := range patches {
		if p.manager == trainjob.Manager {
			warnings = append(warnings, leftOut(p.path))
		} else {
			others = append(others, p)
		}
	}
	return others, warnings
}

// notOurs refuses our manager as the owner of what somebody else wrote: we would take it
// away.
func notOurs(owner string) field.ErrorList {
	if owner != trainjob.Manager {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("owner"), owner,
		"it owns what kueue-trainer writes and takes away again: name another owner")}
}

func leftOut(path *field.Path) string {
	return fmt.Sprintf("%s: it is left out, as kueue-trainer wrote it for a queue and for one cluster; "+
		"the webhook adds what the TrainJob needs where it is created", path)
}
