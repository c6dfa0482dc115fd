// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// pullSecrets are what is merged into one list.
type pullSecrets struct {
	// lists counts those that are not empty, the runtime's included.
	lists int
	// unnamed are where a name is missing.
	unnamed []*field.Path
}

// addSecrets counts a list of pull secrets for a replicated job; unknown ones have none.
func (t templates) addSecrets(path *field.Path, value any, job string) {
	list, secrets := t.secrets[job], objects(value)
	if list == nil || len(secrets) == 0 {
		return
	}
	list.lists++
	for i, secret := range secrets {
		if text(secret["name"]) == "" {
			list.unnamed = append(list.unnamed, path.Index(i).Child("name"))
		}
	}
}

// namedSecrets: webhook. The CRD takes a reference without a name, but Trainer cannot
// merge one with a second list, and panics.
func (v *Verdict) namedSecrets(known templates) {
	for _, job := range slices.Sorted(maps.Keys(known.secrets)) {
		for _, path := range known.secrets[job].unnamed {
			if known.secrets[job].lists > 1 {
				v.refuse(field.Required(path, "name a secret"))
			} else {
				v.warn(field.Required(path, "name a secret; Trainer accepts it as long as nobody else has pull secrets for the job"))
			}
		}
	}
}
