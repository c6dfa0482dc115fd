// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Snapshot returns what Kueue's scheduler would see.
func (i *Inventory) Snapshot(ctx context.Context) (*scheduler.Snapshot, error) {
	return i.World().Snapshot(ctx, i.Workloads)
}

// World returns what Workloads compete for.
func (i *Inventory) World() *scheduler.World {
	return &scheduler.World{
		Flavors: i.Flavors, Topologies: i.Topologies, AdmissionChecks: i.AdmissionChecks, Cohorts: i.Cohorts,
		ClusterQueues: i.ClusterQueues, LocalQueues: i.LocalQueues, Nodes: i.Nodes, Pods: i.Pods,
	}
}

// Stopped tells why a ClusterQueue admits nothing now, in Kueue's own words, or is empty.
func Stopped(cq *kueue.ClusterQueue) string {
	if policy := ptr.Deref(cq.Spec.StopPolicy, kueue.None); policy != kueue.None {
		return fmt.Sprintf("stopPolicy is %s", policy)
	}
	if condition := Inactive(cq); condition != nil {
		return condition.Message
	}
	return ""
}

// Inactive returns the condition by which Kueue says that a ClusterQueue is not active, be it
// stopped or missing something; nil for an active one, and before Kueue has looked at it.
func Inactive(cq *kueue.ClusterQueue) *metav1.Condition {
	active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
	if active == nil || active.Status == metav1.ConditionTrue {
		return nil
	}
	return active
}
