// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// stage is where the story is played: it holds what the watches have shown so far. Only
// the goroutine that awaits the story's steps reads and writes it.
type stage struct {
	teller
	cluster   *world.Cluster
	sightings chan sighting

	// jobs in the order of their first sight.
	jobs  []*jobRecord
	told  map[string]bool
	nodes map[string]corev1.Node
	queue *kueue.ClusterQueue
	made  []client.Object
}

type sighting struct {
	at      time.Time
	obj     client.Object
	deleted bool
}

func newStage(cluster *world.Cluster) *stage {
	s := &stage{cluster: cluster, sightings: make(chan sighting, 1000), told: map[string]bool{}, nodes: map[string]corev1.Node{}}
	s.teller = teller{paint: show.Painter(os.Stdout), width: 14, next: s.next, state: s.state}
	return s
}

func (s *stage) job(team, name string) *jobRecord {
	for _, r := range s.jobs {
		if r.team == team && r.name == name {
			return r
		}
	}
	r := &jobRecord{team: team, name: name}
	s.jobs = append(s.jobs, r)
	return r
}

// follow starts the watches. It comes before the first object is created.
func (s *stage) follow(ctx context.Context) {
	tell := func(obj client.Object, deleted bool) {
		select {
		case s.sightings <- sighting{time.Now(), obj, deleted}:
		case <-ctx.Done():
		}
	}
	attempt.Succeed(record.Follow(ctx, s.cluster.Config, s.cluster.Client.Scheme(), "", tell, &trainer.TrainJob{}, &kueue.Workload{}, &corev1.Pod{}, &kueue.ClusterQueue{}))
}

// next notes what a watch shows, and tells of it.
func (s *stage) next(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case seen := <-s.sightings:
		switch obj := seen.obj.(type) {
		case *trainer.TrainJob:
			s.onTrainJob(seen, obj)
		case *kueue.Workload:
			s.onWorkload(seen, obj)
		case *corev1.Pod:
			s.onPod(seen, obj)
		case *kueue.ClusterQueue:
			s.queue = obj
		}
	}
	// The story has no room for such an end.
	for _, r := range s.jobs {
		if r.failure != "" {
			return fmt.Errorf("TrainJob %s failed: %s", r, r.failure)
		}
	}
	return nil
}

// say tells of a job, each thing once.
func (s *stage) say(at time.Time, r *jobRecord, colour func(string) string, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key := r.String() + text; !s.told[key] {
		s.told[key] = true
		s.tell(at, r.String(), colour, text)
	}
}

func (s *stage) state() string {
	var b strings.Builder
	for _, r := range s.jobs {
		fmt.Fprintf(&b, "\n  %-15s %s", r, r.state())
	}
	return b.String()
}

// jobRecord is what the watches have shown of one TrainJob. Times are those of the sight:
// the API's own have whole seconds only.
type jobRecord struct {
	team, name string
	uid        types.UID
	complete   bool
	failure    string
	// finished is when Kueue declared the Workload finished, and its quota free.
	finished time.Time

	workload    *kueue.Workload
	waits       string
	preemptedBy string

	stays []*stay
	// pods are all that there were, those that never ran included.
	pods []*podRecord
}

// stay is the time from one admission to its end.
type stay struct {
	ended  time.Time
	groups []*group
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

func (r *jobRecord) String() string { return r.team + "/" + r.name }

// now is the current stay, or nil while the job has no quota.
func (r *jobRecord) now() *stay {
	if len(r.stays) == 0 || !r.stays[len(r.stays)-1].ended.IsZero() {
		return nil
	}
	return r.stays[len(r.stays)-1]
}

// flavors are those of all stays, in their order.
func (r *jobRecord) flavors() []string {
	var names []string
	for _, s := range r.stays {
		names = append(names, s.flavor)
	}
	return names
}

func newStay(admission *kueue.Admission) *stay {
	s := &stay{}
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
func (p *podRecord) runs() bool            { return !p.running.IsZero() && p.over.IsZero() }
func (p *podRecord) succeeded() bool       { return p.Status.Phase == corev1.PodSucceeded }

// trains tells whether all pods with GPUs run, in the given flavor.
func (r *jobRecord) trains(flavor string) bool {
	now := r.now()
	return now != nil && now.flavor == flavor &&
		!slices.ContainsFunc(now.groups, func(g *group) bool { return g.gpus > 0 && !g.all((*podRecord).runs) })
}

func (r *jobRecord) active() int { return count(r.pods, (*podRecord).runs) }

// state is how far the job is, for a story that stopped.
func (r *jobRecord) state() string {
	return fmt.Sprintf("admitted to pools %v, waits: %q, TrainJob complete: %t, Workload finished: %t, pods running: %d",
		r.flavors(), r.waits, r.complete, !r.finished.IsZero(), r.active())
}

func (s *stage) set(ctx context.Context) {
	s.follow(ctx)
	for _, obj := range setting() {
		attempt.Succeed(s.cluster.Client.Create(ctx, obj), "creating %T %s", obj, client.ObjectKeyFromObject(obj))
		s.made = append(s.made, obj)
	}
	var nodes corev1.NodeList
	attempt.Succeed(s.cluster.Client.List(ctx, &nodes), "listing nodes")
	for _, node := range nodes.Items {
		s.nodes[node.Name] = node
	}
	s.await(ctx, s.quotaActive())
	s.start = time.Now()
	fmt.Print(introduction)
	table := show.NewTable("TRAINJOB", "QUEUE", "WANTS")
	for _, job := range []*trainer.TrainJob{resnet, llama, qwen, vit} {
		table.Row(job.Namespace+"/"+job.Name, job.Labels[kit.QueueLabel], wants(job))
	}
	attempt.Succeed(table.Print(os.Stdout, s.paint))
	fmt.Print("\nSeconds, TrainJob, what happens:\n\n")
}

// introduction is of the quotas and the cast: how many GPUs there are, and are wanted.
const introduction = `
Two teams, vision and language, share the quota of ClusterQueue gpus on two pools of GPU nodes, of 32
GPUs each. Together their TrainJobs want 66, two more than there are.
Nodes and their pods are fake (kwok), and the demo says how long a pod computes. Everything else
is real: the API server, its scheduler and controllers, Kueue, Trainer, JobSet, kueue-trainer.

`
