// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ReadAll reads the facts of TrainJobs of one namespace, or of all where that is empty. What it takes
// a rendering to know is left out: owners of fields, and the PodSets of a job without a Workload.
func ReadAll(ctx context.Context, c client.Client, jobs []trainjob.TrainJob, namespace string) (*Snapshot, error) {
	s, err := around(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.read(ctx, c, namespace, ""); err != nil {
		return nil, err
	}
	s.Cluster.asked = sets.New[client.ObjectKey]()
	for n := range jobs {
		f := s.Of(&jobs[n])
		s.Facts = append(s.Facts, f)
		if f.waitsForQuota() {
			s.Cluster.asked.Insert(client.ObjectKeyFromObject(f.Workload))
		}
	}
	s.places(ctx, c)
	return s, nil
}

// places tells every job its position, computed for all at once or, where the user may not
// see who else waits, as Kueue says it.
func (s *Snapshot) places(ctx context.Context, c client.Client) {
	if !s.Cluster.Saw(workloads) || !s.Cluster.Saw(localQueues) {
		s.visible(ctx, c)
		return
	}
	known := positions(s.Cluster, s.Now)
	for _, f := range s.Facts {
		if f.Workload != nil {
			f.Visible = known[f.Workload.UID]
		}
	}
}

// visible asks Kueue, once for each LocalQueue in which a job waits. It is an option of Kueue:
// where it is not served, or not to this user, it is asked no more.
func (s *Snapshot) visible(ctx context.Context, c client.Client) {
	answers := map[types.NamespacedName][]visibility.PendingWorkload{}
	for _, f := range s.Facts {
		queue := f.localQueue()
		if queue == nil || !f.waitsForQuota() {
			continue
		}
		key := client.ObjectKeyFromObject(queue)
		if _, asked := answers[key]; !asked {
			pending, err := pendingIn(ctx, c, key)
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
				return
			}
			answers[key] = pending
		}
		f.Visible = placeIn(answers[key], f)
	}
}

// waitsForQuota reports whether the job's Workload has a place in its queue.
func (f *Facts) waitsForQuota() bool {
	return f.Workload != nil && !kueuelib.IsFinished(f.Workload) && !kueuelib.HasQuotaReservation(f.Workload)
}

// positions returns those of all that wait, each with the next one before it.
func positions(c *Cluster, now time.Time) map[types.UID]*Position {
	all := map[types.UID]*Position{}
	for _, queue := range queues(c, now) {
		for n, wl := range queue {
			all[wl.UID] = &Position{Place: n + 1, Pending: len(queue), Source: Computed}
			if n > 0 {
				all[wl.UID].Ahead = []string{nameOf(queue[n-1])}
			}
		}
	}
	return all
}

// Queues returns the LocalQueue that the job asks for and the ClusterQueue behind it; empty
// where there is none, or none to be seen.
func (f *Facts) Queues() (local, cluster string) {
	return f.queueName(), string(f.clusterQueueName())
}

// Place returns the job's place among those that wait in its ClusterQueue; nil for a job that
// does not wait there, and where that cannot be seen.
func (f *Facts) Place() *Position { return f.position() }

// GPUs sums up the GPUs that the PodSets ask for.
func (f *Facts) GPUs() map[corev1.ResourceName]int64 {
	sum := sumOf(f.PodSets)
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ int64) bool { return !gpu.IsResource(name) })
	return sum
}

// Assigned names the flavors that the job has: those of its GPUs, where it has any.
func (f *Facts) Assigned() []string {
	if f.Workload == nil || f.Workload.Status.Admission == nil {
		return nil
	}
	all, ofGPUs := sets.New[string](), sets.New[string]()
	for _, assignment := range f.Workload.Status.Admission.PodSetAssignments {
		for name, flavor := range assignment.Flavors {
			all.Insert(string(flavor))
			if gpu.IsResource(name) {
				ofGPUs.Insert(string(flavor))
			}
		}
	}
	if len(ofGPUs) > 0 {
		return sets.List(ofGPUs)
	}
	return sets.List(all)
}
