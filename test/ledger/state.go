// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	utilslices "sigs.k8s.io/kueue/pkg/util/slices"
)

type state struct {
	// pods are those on a node that have not ended.
	pods      map[types.UID]*boundPod
	workloads map[types.UID]*charge
	queues    map[string]*kueue.ClusterQueueSpec
	cohorts   map[kueue.CohortReference]*kueue.CohortSpec
	nodes     map[string]map[string]string
	// What follows outlives the objects: a pod may run on when they are gone.

	// owners leads from Jobs and JobSets to their owner.
	owners map[types.UID]types.UID
	// gone are JobSets that were deleted, late the Jobs that were made of such ones and are deleted
	// themselves, as those of deleted are at some time.
	gone, late, deleted map[types.UID]bool
	// trainJobs holds the LocalQueue of every TrainJob, names their names.
	trainJobs   map[types.UID]string
	names       map[types.UID]string
	localQueues map[string]string
	// flavors holds all node labels that a flavor ever had: pods that were placed before it was edited run on.
	flavors map[string][]map[string]string
}

// boundPod is a pod on a node, and what it is counted for ever after.
type boundPod struct {
	*pod
	job  types.UID
	asks map[slot]int64
	// late is set where its Job was made of a JobSet that was gone.
	late bool
	// joined is when its job came into a queue, where it was on its node before that.
	joined time.Time
}

// joining is how long the pods of a job may take to end that comes into a queue: it ran without quota before, and
// stops for that.
const joining = time.Minute

type slot struct {
	clusterQueue, flavor string
	resource             corev1.ResourceName
}

func newState() *state {
	return &state{
		pods: map[types.UID]*boundPod{}, workloads: map[types.UID]*charge{},
		queues: map[string]*kueue.ClusterQueueSpec{}, cohorts: map[kueue.CohortReference]*kueue.CohortSpec{},
		nodes: map[string]map[string]string{}, localQueues: map[string]string{}, flavors: map[string][]map[string]string{},
		owners: map[types.UID]types.UID{}, trainJobs: map[types.UID]string{}, names: map[types.UID]string{},
		gone: map[types.UID]bool{}, late: map[types.UID]bool{}, deleted: map[types.UID]bool{},
	}
}

// applyOwner notes whose a JobSet or a Job is. An orphan is still the pod's way to its TrainJob.
func (s *state) applyOwner(uid, owner types.UID) {
	if owner == "" {
		return
	}
	if _, known := s.owners[uid]; !known {
		s.late[uid] = s.gone[owner] && s.deleted[uid]
	}
	s.owners[uid] = owner
}

func (s *state) applyPod(uid types.UID, p *pod) {
	if p.node == "" || p.ended {
		delete(s.pods, uid)
	} else if s.pods[uid] == nil {
		s.pods[uid] = &boundPod{pod: p, job: s.trainJobOf(p.owner), late: s.late[p.owner]}
		s.count(s.pods[uid])
	}
}

// count fixes what a pod is counted for, as soon as Kueue is to look after its job, and reports whether it did.
func (s *state) count(p *boundPod) bool {
	_, queued := s.queueOf(p.job)
	if !queued || p.asks != nil {
		return false
	}
	p.asks = s.asks(p)
	return true
}

// trainJobOf follows owners up to a TrainJob, or as far as they are known.
func (s *state) trainJobOf(owner types.UID) types.UID {
	for range 8 {
		next, ok := s.owners[owner]
		if !ok {
			break
		}
		owner = next
	}
	return owner
}

// queueOf returns the LocalQueue of a TrainJob, and whether Kueue is to look after it: it
// names a queue, or it has a Workload.
func (s *state) queueOf(job types.UID) (string, bool) {
	queue, isTrainJob := s.trainJobs[job]
	return queue, isTrainJob && (queue != "" || len(s.workloadsOf(job)) > 0)
}

// workloadsOf returns the Workloads of a TrainJob, by name.
func (s *state) workloadsOf(job types.UID) []*charge {
	out := slices.DeleteFunc(slices.Collect(maps.Values(s.workloads)), func(wl *charge) bool { return wl.job != job })
	slices.SortFunc(out, func(a, b *charge) int { return strings.Compare(a.name, b.name) })
	return out
}

// root returns the Cohort at the top of one; a ClusterQueue may name one that is not there.
func (s *state) root(cohort kueue.CohortReference) kueue.CohortReference {
	for range 8 {
		spec := s.cohorts[cohort]
		if spec == nil || spec.ParentName == "" {
			break
		}
		cohort = spec.ParentName
	}
	return cohort
}

// asks returns what a pod that is being bound is counted for. Its node says of which
// flavor that is; only where several flavors have such nodes, its Workload does.
func (s *state) asks(p *boundPod) map[slot]int64 {
	clusterQueue := s.clusterQueueOf(p)
	asks := map[slot]int64{}
	for resource, amount := range p.requests {
		flavors, covered := s.flavorsOf(clusterQueue, resource)
		if covered && amount > 0 {
			asks[slot{clusterQueue, s.flavorOf(p, resource, flavors), resource}] += amount
		}
	}
	return asks
}

// clusterQueueOf returns the ClusterQueue that the pod's job holds quota of, or else the one
// that its pod or its queue names.
func (s *state) clusterQueueOf(p *boundPod) string {
	for _, wl := range s.workloadsOf(p.job) {
		if wl.reserved {
			return wl.clusterQueue
		}
	}
	if s.queues[p.clusterQueue] != nil {
		return p.clusterQueue
	}
	queue, _ := s.queueOf(p.job)
	return s.localQueues[queue]
}

// flavorsOf returns the flavors of a resource in a ClusterQueue, and whether it has quota of
// it at all. Without a ClusterQueue nothing has quota.
func (s *state) flavorsOf(clusterQueue string, resource corev1.ResourceName) ([]string, bool) {
	spec := s.queues[clusterQueue]
	if spec == nil {
		return nil, resource != corev1.ResourcePods
	}
	for _, group := range spec.ResourceGroups {
		if slices.Contains(group.CoveredResources, resource) {
			return utilslices.Map(group.Flavors, func(flavor *kueue.FlavorQuotas) string { return string(flavor.Name) }), true
		}
	}
	return nil, false
}

// flavorOf picks the flavor whose nodes the pod is on, the one that says most of them where
// its Workload does not decide; "" is none.
func (s *state) flavorOf(p *boundPod, resource corev1.ResourceName, flavors []string) string {
	best, most := "", -1
	for _, flavor := range flavors {
		count, found := s.matching(flavor, s.nodes[p.node])
		if found && s.assigned(p, resource) == flavor {
			return flavor
		}
		if found && count > most {
			best, most = flavor, count
		}
	}
	return best
}

// assigned is the flavor that a Workload of the pod's job has for it.
func (s *state) assigned(p *boundPod, resource corev1.ResourceName) string {
	for _, wl := range s.workloadsOf(p.job) {
		if flavor := wl.flavors[p.podSet][resource]; flavor != "" {
			return string(flavor)
		}
	}
	return ""
}

// matching returns how many node labels a flavor has, or once had, if all are on a node.
func (s *state) matching(flavor string, node map[string]string) (int, bool) {
	most, found := 0, false
	for _, of := range s.flavors[flavor] {
		if labels.SelectorFromSet(of).Matches(labels.Set(node)) {
			most, found = max(most, len(of)), true
		}
	}
	return most, found
}
