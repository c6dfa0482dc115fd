// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// record is what the watches have shown of one TrainJob. Times are those of the sight:
// the API's own have whole seconds only.
type record struct {
	team, name string
	uid        types.UID
	queue      string
	complete   bool
	failure    string
	submitted  time.Time
	// finished is when Kueue declared the Workload finished, and its quota free.
	finished time.Time

	// workload as last seen.
	workload *kueue.Workload
	// waits is what Kueue last said about why the job waits.
	waits string
	// preemptedBy is who took the quota.
	preemptedBy string

	stays []*stay
	// pods are all that there were, those that never ran included.
	pods []*podRecord
}

// stay is the time from one admission to its end.
type stay struct {
	admitted, ended time.Time
	groups          []*group
	// flavor is that of the GPUs; the jobs of the story use one at a time.
	flavor string
	gpus   int64
	// nodes are the pods with GPUs, of which each is what Trainer calls a node; the others are without.
	nodes, without int
}

// group is what an admission gives to one replicated job, and the pods of that which ran by it.
type group struct {
	replicatedJob, flavor string
	size                  int
	gpus                  int64
	pods                  []*podRecord
}

// podRecord is a pod, also after it is gone.
type podRecord struct {
	*corev1.Pod
	// group is the one that the pod ran in, nil before that.
	group *group
	// over is when it succeeded, failed or was gone.
	running, over time.Time
}

func (r *record) String() string { return r.team + "/" + r.name }

// now is the current stay, or nil while the job has no quota.
func (r *record) now() *stay {
	if len(r.stays) == 0 || !r.stays[len(r.stays)-1].ended.IsZero() {
		return nil
	}
	return r.stays[len(r.stays)-1]
}

// flavors are those of all stays, in their order.
func (r *record) flavors() []string {
	var names []string
	for _, s := range r.stays {
		names = append(names, s.flavor)
	}
	return names
}

func newStay(at time.Time, admission *kueue.Admission) *stay {
	s := &stay{admitted: at}
	for _, a := range admission.PodSetAssignments {
		gpus := a.ResourceUsage[kit.GPU]
		g := &group{replicatedJob: string(a.Name), size: int(ptr.Deref(a.Count, 0)), gpus: gpus.Value(), flavor: string(a.Flavors[kit.GPU])}
		s.groups = append(s.groups, g)
		s.gpus += g.gpus
		s.flavor = cmp.Or(s.flavor, g.flavor)
		if g.gpus > 0 {
			s.nodes += g.size
		} else {
			s.without += g.size
		}
	}
	return s
}

// pods are those that ran during a stay.
func (s *stay) pods() []*podRecord {
	var all []*podRecord
	for _, g := range s.groups {
		all = append(all, g.pods...)
	}
	return all
}

// all tells whether all pods that were admitted are something.
func (g *group) all(is func(*podRecord) bool) bool { return count(g.pods, is) == g.size }

func count(pods []*podRecord, is func(*podRecord) bool) int {
	n := 0
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}

func (p *podRecord) replicatedJob() string { return p.Labels[jobsetapi.ReplicatedJobNameKey] }

func (p *podRecord) runs() bool { return !p.running.IsZero() && p.over.IsZero() }

func (p *podRecord) succeeded() bool { return p.Status.Phase == corev1.PodSucceeded }

// trains tells whether all pods with GPUs run, in the given flavor.
func (r *record) trains(flavor string) bool {
	now := r.now()
	return now != nil && now.flavor == flavor &&
		!slices.ContainsFunc(now.groups, func(g *group) bool { return g.gpus > 0 && !g.all((*podRecord).runs) })
}

// active counts the pods that run.
func (r *record) active() int { return count(r.pods, (*podRecord).runs) }

// state is how far the job is, for a story that stopped.
func (r *record) state() string {
	switch now := r.now(); {
	case !r.finished.IsZero():
		return fmt.Sprintf("Workload finished, TrainJob complete: %t, pods running: %d", r.complete, r.active())
	case now != nil:
		return fmt.Sprintf("admitted to pool %s, pods running: %d", now.flavor, r.active())
	case r.workload == nil:
		return "no Workload yet"
	case r.waits != "":
		return "waits: " + shorten(r.waits)
	}
	return fmt.Sprintf("waits for quota, pods running: %d", r.active())
}
