// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Snapshot returns what Kueue's scheduler would see, made by Kueue's own cache: quota that
// is left along the cohort tree, topology domains and their free capacity. A ClusterQueue
// that is stopped, or misses a flavor, topology or admission check, is in its
// InactiveClusterQueueSets and nowhere else.
// It fails when cohorts form a cycle; the error names one of them.
func (i *Inventory) Snapshot(ctx context.Context) (*scheduler.Snapshot, error) {
	cache, err := i.World().Cache(ctx, nothingCached{}, i.Workloads)
	if err != nil {
		return nil, err
	}
	return cache.Snapshot(logr.NewContext(ctx, logr.Discard()))
}

// World returns what Workloads compete for.
func (i *Inventory) World() *scheduler.World {
	return &scheduler.World{
		Flavors: i.Flavors, Topologies: i.Topologies, AdmissionChecks: i.AdmissionChecks, Cohorts: i.Cohorts,
		ClusterQueues: i.ClusterQueues, LocalQueues: i.LocalQueues, Nodes: i.Nodes, Pods: i.Pods,
	}
}

// nothingCached is the client of Kueue's cache, which asks it for the LocalQueues and
// Workloads that were there before a ClusterQueue: we add Workloads afterwards.
type nothingCached struct{ client.Client }

func (nothingCached) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (nothingCached) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the inventory reads nothing but what it was given")
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
