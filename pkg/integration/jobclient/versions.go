// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// outdatedFor is how long a version of a Workload that was overtaken is left alone. The
// event of the newer one ends that earlier.
const outdatedFor = 5 * time.Second

// Version is one state of a Workload.
type Version struct {
	uid                   types.UID
	name, resourceVersion string
}

// VersionsOf returns the states that workloads are in.
func VersionsOf(workloads []kueue.Workload) []Version {
	var versions []Version
	for i := range workloads {
		versions = append(versions, Version{workloads[i].UID, workloads[i].Name, workloads[i].ResourceVersion})
	}
	return versions
}

// VersionsNamed returns the versions of a Workload.
func VersionsNamed(name string, versions []Version) []Version {
	return slices.DeleteFunc(slices.Clone(versions), func(v Version) bool { return v.name != name })
}

// outdatedVersions are versions of Workloads of which newer ones exist, and since when.
type outdatedVersions map[Version]time.Time

// Outdate notes that newer versions exist than these, of the Workloads of a TrainJob: we
// wrote one, or were refused for another's.
func (e *Expectations) Outdate(job types.NamespacedName, versions []Version) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byName[job] == nil {
		e.byName[job] = &memory{}
	}
	m := e.byName[job]
	if m.old == nil {
		m.old = outdatedVersions{}
	}
	for _, v := range versions {
		m.old[v] = e.clock.Now()
	}
}

// Outdated reports whether one of these versions is known to be overtaken. Whatever would be
// written by it would be refused again.
func (e *Expectations) Outdated(job types.NamespacedName, versions []Version) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.byName[job]
	if m == nil {
		return false
	}
	maps.DeleteFunc(m.old, func(v Version, at time.Time) bool {
		return e.clock.Since(at) >= outdatedFor || !slices.Contains(versions, v)
	})
	return len(m.old) > 0
}
