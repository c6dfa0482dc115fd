// SPDX-License-Identifier: Apache-2.0

// Package record records every version of the objects that somebody watches as an outsider,
// with the admin's credentials and without Go types.
package record

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Version is an object as it was from one resource version on. These are ordered over
// all kinds, because all kinds lie in one etcd.
type Version struct {
	RV      uint64
	Deleted bool
	Object  *unstructured.Unstructured
	// At is when it was recorded.
	At time.Time
}

func (v Version) String() string {
	return fmt.Sprintf("%s %s at resourceVersion %d", v.Object.GetKind(), v.Object.GetName(), v.RV)
}

// InOrder returns versions in the order of their resource versions: the watches of several
// kinds bring theirs independently of each other.
func InOrder(versions []Version) []Version {
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b Version) int { return cmp.Compare(a.RV, b.RV) })
	return versions
}
