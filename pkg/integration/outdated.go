// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// outdatedFor is how long a version of a Workload that was overtaken is left alone. The
// event of the newer one ends that earlier.
const outdatedFor = 5 * time.Second

// version is one state of a Workload.
type version struct {
	uid                   types.UID
	name, resourceVersion string
}

func versionsOf(workloads []kueue.Workload) []version {
	var versions []version
	for i := range workloads {
		versions = append(versions, version{workloads[i].UID, workloads[i].Name, workloads[i].ResourceVersion})
	}
	return versions
}

// named returns the versions of a Workload.
func named(name string, versions []version) []version {
	return slices.DeleteFunc(slices.Clone(versions), func(v version) bool { return v.name != name })
}

// outdatedVersions are versions of Workloads of which newer ones exist, and since when.
type outdatedVersions map[version]time.Time

// outdate notes that newer versions exist than these, of the Workloads of a TrainJob: we
// wrote one, or were refused for another's.
func (e *expectations) outdate(job types.NamespacedName, versions []version) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.old[job] == nil {
		e.old[job] = outdatedVersions{}
	}
	for _, v := range versions {
		e.old[job][v] = e.clock.Now()
	}
}

// outdated reports whether one of these versions is known to be overtaken. Whatever would be
// written by it would be refused again.
func (e *expectations) outdated(job types.NamespacedName, versions []version) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.old[job], func(v version, at time.Time) bool {
		return e.clock.Since(at) >= outdatedFor || !slices.Contains(versions, v)
	})
	if len(e.old[job]) > 0 {
		return true
	}
	delete(e.old, job)
	return false
}

// overtakenWorkload returns the name of the Workload that err is a conflict about; empty:
// it is about something else.
func overtakenWorkload(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) {
		return ""
	}
	details := status.Status().Details
	if details == nil || details.Group != kueue.SchemeGroupVersion.Group || details.Kind != "workloads" {
		return ""
	}
	return details.Name
}
