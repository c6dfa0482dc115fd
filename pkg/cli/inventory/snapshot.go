// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
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
	ctx = logr.NewContext(ctx, logr.Discard())
	cache := scheduler.New(nothingCached{})
	for n := range i.Topologies {
		cache.AddOrUpdateTopology(logr.Discard(), &i.Topologies[n])
	}
	for n := range i.Flavors {
		cache.AddOrUpdateResourceFlavor(logr.Discard(), &i.Flavors[n])
	}
	for n := range i.AdmissionChecks {
		cache.AddOrUpdateAdmissionCheck(logr.Discard(), &i.AdmissionChecks[n])
	}
	for n := range i.Cohorts {
		if err := cache.AddOrUpdateCohort(&i.Cohorts[n]); err != nil {
			return nil, fmt.Errorf("Cohort %s: %w", i.Cohorts[n].Name, err)
		}
	}
	for n := range i.ClusterQueues {
		if err := cache.AddClusterQueue(ctx, &i.ClusterQueues[n]); err != nil {
			return nil, fmt.Errorf("ClusterQueue %s: %w", i.ClusterQueues[n].Name, err)
		}
	}
	for n := range i.Workloads {
		// Kueue's cache trusts that quota comes with an admission; its webhook leaves older Workloads alone.
		if wl := &i.Workloads[n]; wl.Status.Admission != nil {
			cache.AddOrUpdateWorkload(logr.Discard(), wl)
		}
	}
	i.addUsedNodes(cache)
	return cache.Snapshot(ctx)
}

// addUsedNodes tells the cache what is there below a topology, and what pods that Kueue
// has not placed take of it.
func (i *Inventory) addUsedNodes(cache *scheduler.Cache) {
	for n := range i.Nodes {
		cache.TASCache().SyncNode(&i.Nodes[n])
	}
	for n := range i.Pods {
		if pod := &i.Pods[n]; othersOnNode(pod) {
			cache.TASCache().Update(pod, logr.Discard())
		}
	}
}

// othersOnNode reports whether a pod takes of a topology what Kueue has not given it.
func othersOnNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !ended(pod) && !scheduler.PlacedByTopology(pod)
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
