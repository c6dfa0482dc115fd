// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Placed says where an admission sends a job: queue, ClusterQueue, and the
// flavor of every PodSet.
func Placed(wl *kueue.Workload) string {
	admission := wl.Status.Admission
	parts := kueuelib.Map(admission.PodSetAssignments, assignmentMessage)
	return kueuelib.TruncateEvent(fmt.Sprintf("Admitted from queue %s by ClusterQueue %s: %s",
		wl.Spec.QueueName, admission.ClusterQueue, strings.Join(parts, "; ")))
}

// Dispatched says in which cluster a job runs, and what it is charged to in this one.
func Dispatched(wl *kueue.Workload) string {
	where := "another cluster"
	if name := ptr.Deref(wl.Status.ClusterName, ""); name != "" {
		where = "cluster " + name
	}
	return fmt.Sprintf("Admitted from queue %s by ClusterQueue %s, and runs in %s", wl.Spec.QueueName, wl.Status.Admission.ClusterQueue, where)
}

func assignmentMessage(a *kueue.PodSetAssignment) string {
	byFlavor := map[kueue.ResourceFlavorReference][]string{}
	for resource, flavor := range a.Flavors {
		usage := a.ResourceUsage[resource]
		byFlavor[flavor] = append(byFlavor[flavor], fmt.Sprintf("%s %s", usage.String(), resource))
	}
	flavors := make([]string, 0, len(byFlavor))
	for _, flavor := range slices.Sorted(maps.Keys(byFlavor)) {
		amounts := byFlavor[flavor]
		slices.Sort(amounts)
		flavors = append(flavors, fmt.Sprintf("flavor %s (%s)", flavor, strings.Join(amounts, ", ")))
	}
	if len(flavors) == 0 {
		flavors = []string{"no flavor, it requests nothing"}
	}
	return fmt.Sprintf("%s %s on %s", a.Name, Count(ptr.Deref(a.Count, 0), "pod"), strings.Join(flavors, ", "))
}

// Count returns a number of things in words: 1 pod, 2 pods.
func Count(n int32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
