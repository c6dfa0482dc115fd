// SPDX-License-Identifier: Apache-2.0

package trainjob

// Release is a line of Trainer releases with the same rules for patches of the runtime.
type Release string

const (
	// Trainer21 has spec.podTemplateOverrides, which may change while the new object is suspended.
	Trainer21 Release = "2.1"
	// Trainer220 has spec.runtimePatches, which may change while the new object is suspended.
	Trainer220 Release = "2.2.0"
	// Trainer22 is 2.2.1 and later: runtimePatches may change in the request that unsuspends, too.
	Trainer22 Release = "2.2"
	// Trainer23 adds terminationGracePeriodSeconds and merges resourcesPerNode by resource.
	Trainer23 Release = "2.3"
)

// Generation is the API by which a TrainJob patches its runtime: the name of the field.
type Generation string

const (
	// PodTemplateOverrides is a list without owners (Trainer 2.1).
	PodTemplateOverrides Generation = "podTemplateOverrides"
	// RuntimePatches is a list of entries, one per manager (Trainer 2.2 and later).
	RuntimePatches Generation = "runtimePatches"
)

// Generation gives the API that a release serves.
func (r Release) Generation() Generation {
	if r == Trainer21 {
		return PodTemplateOverrides
	}
	return RuntimePatches
}
