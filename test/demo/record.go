// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	submitted  time.Time
	complete   bool
	failure    string

	// workload as last seen.
	workload *kueue.Workload
	// waits is what Kueue last said about why the job waits.
	waits string
	// preemptedBy is who took the quota.
	preemptedBy string
	// finished is when Kueue declared the Workload finished, and its quota free.
	finished time.Time

	stays []*stay
	pods  []*podRecord
}

// stay is the time from one admission to its end.
type stay struct {
	admitted, ended time.Time
	podSets         []share
	// told are the things about this stay that are said once.
	told map[string]bool
}

// share is what an admission gives to one replicated job.
type share struct {
	replicatedJob string
	pods          int
	gpusPerPod    int64
	flavor        string
}

// podRecord is a pod, also after it is gone.
type podRecord struct {
	*corev1.Pod
	// stay is the one during which the pod ran, nil before that.
	stay *stay
	// over is when it succeeded, failed or was gone.
	running, over time.Time
}

func newRecord(team, name string) *record { return &record{team: team, name: name} }

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
		names = append(names, s.flavor())
	}
	return names
}

func newStay(at time.Time, admission *kueue.Admission) *stay {
	s := &stay{admitted: at, told: map[string]bool{}}
	for _, a := range admission.PodSetAssignments {
		sh := share{replicatedJob: string(a.Name), flavor: string(a.Flavors[kit.GPU])}
		if a.Count != nil {
			sh.pods = int(*a.Count)
		}
		if gpus := a.ResourceUsage[kit.GPU]; sh.pods > 0 {
			sh.gpusPerPod = gpus.Value() / int64(sh.pods)
		}
		s.podSets = append(s.podSets, sh)
	}
	return s
}

// flavor is that of the GPUs; the jobs of the story use one at a time.
func (s *stay) flavor() string {
	for _, sh := range s.podSets {
		if sh.flavor != "" {
			return sh.flavor
		}
	}
	return "-"
}

// nodes are the pods with GPUs: of the jobs of this story, each is what Trainer calls a node.
func (s *stay) nodes() int {
	n := 0
	for _, sh := range s.podSets {
		if sh.gpusPerPod > 0 {
			n += sh.pods
		}
	}
	return n
}

func (s *stay) gpus() int64 {
	var n int64
	for _, sh := range s.podSets {
		n += int64(sh.pods) * sh.gpusPerPod
	}
	return n
}

// without are the pods that need no GPU.
func (s *stay) without() int {
	n := 0
	for _, sh := range s.podSets {
		if sh.gpusPerPod == 0 {
			n += sh.pods
		}
	}
	return n
}

func (s *stay) once(what string) bool {
	first := !s.told[what]
	s.told[what] = true
	return first
}

func (p *podRecord) replicatedJob() string { return p.Labels[jobsetapi.ReplicatedJobNameKey] }

// podsOf returns the pods that ran during a stay, of one replicated job or of all ("").
func (r *record) podsOf(s *stay, replicatedJob string) []*podRecord {
	var pods []*podRecord
	for _, p := range r.pods {
		if p.stay == s && !p.running.IsZero() && (replicatedJob == "" || p.replicatedJob() == replicatedJob) {
			pods = append(pods, p)
		}
	}
	return pods
}

// runs tells whether all pods of a share run.
func (r *record) runs(s *stay, sh share) bool {
	n := 0
	for _, p := range r.podsOf(s, sh.replicatedJob) {
		if p.over.IsZero() {
			n++
		}
	}
	return n == sh.pods
}

// trains tells whether all pods with GPUs run, in the given flavor.
func (r *record) trains(flavor string) bool {
	now := r.now()
	if now == nil || now.flavor() != flavor {
		return false
	}
	return !slices.ContainsFunc(now.podSets, func(sh share) bool { return sh.gpusPerPod > 0 && !r.runs(now, sh) })
}

// active counts the pods that run.
func (r *record) active() int {
	n := 0
	for _, p := range r.pods {
		if !p.running.IsZero() && p.over.IsZero() {
			n++
		}
	}
	return n
}

// state is how far the job is, for a story that stopped.
func (r *record) state() string {
	switch now := r.now(); {
	case !r.finished.IsZero():
		return "finished"
	case now != nil:
		return fmt.Sprintf("admitted to pool %s, pods running: %d", now.flavor(), r.active())
	case r.workload == nil:
		return "no Workload yet"
	case r.waits != "":
		return "waits: " + shorten(r.waits)
	}
	return fmt.Sprintf("waits for quota, pods running: %d", r.active())
}
