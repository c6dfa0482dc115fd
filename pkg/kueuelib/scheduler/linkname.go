// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	_ "unsafe" // For go:linkname.

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/kueue/pkg/scheduler"
	_ "sigs.k8s.io/kueue/pkg/scheduler/flavorassigner" // FlavorSelector is linked to.
	"sigs.k8s.io/kueue/pkg/util/wait"
)

// schedule is one cycle of Kueue's scheduler, which exports only the endless row of them.
//
//go:linkname schedule sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func schedule(*scheduler.Scheduler, context.Context) wait.SpeedSignal //nolint:revive // A method has its receiver first.

// FlavorSelector is what the node selector and affinity of a pod ask of a flavor that has labels of these keys: what they
// ask of others does not count.
//
//go:linkname FlavorSelector sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.flavorSelector
func FlavorSelector(*corev1.PodSpec, sets.Set[string]) nodeaffinity.RequiredNodeAffinity
