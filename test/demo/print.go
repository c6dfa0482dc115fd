// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// set starts the watches, creates everything but the jobs, and introduces it.
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
	s.Await(ctx, s.quotaActive())
	s.Start = time.Now()
	s.introduce()
}

const introduction = `
Two teams, vision and language, share the quota of ClusterQueue gpus on two pools of GPU nodes.
Nodes and their pods are fake (kwok), and the demo says how long a pod computes. Everything else
is real: the API server, its scheduler and controllers, Kueue, Trainer, JobSet, kueue-trainer.

`

// introduce says who is there, as the API server has it.
func (s *stage) introduce() {
	fmt.Fprint(s.Out, introduction)
	table := [][]any{{"POOL", "NODES", "GPUS", "QUOTA", "LABELS nvidia.com/..."}}
	there := int64(0)
	for _, pool := range pools() {
		nodes, gpus := s.nodesIn(pool.Name)
		there += gpus
		table = append(table, []any{pool.Name, fmt.Sprintf("%s to %s", nodes[0], nodes[len(nodes)-1]), gpus, quota, labelText(pool)})
	}
	s.print(table)
	table = [][]any{{"TRAINJOB", "QUEUE", "WANTS"}}
	wanted := int64(0)
	for _, job := range cast() {
		gpus := job.Spec.Trainer.ResourcesPerNode.Requests[kit.GPU]
		wanted += int64(*job.Spec.Trainer.NumNodes) * gpus.Value()
		table = append(table, []any{job.Namespace + "/" + job.Name, job.Labels[kit.QueueLabel], wants(job)})
	}
	s.print(table)
	fmt.Fprintf(s.Out, "Together they want %d GPUs, and there are %d. Seconds, TrainJob, what happens:\n\n", wanted, there)
}

// nodesIn returns the nodes of a pool by name, and how many GPUs they have.
func (s *stage) nodesIn(pool string) (names []string, gpus int64) {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if s.poolOf(name) == pool {
			amount := s.nodes[name].Status.Allocatable[kit.GPU]
			names, gpus = append(names, name), gpus+amount.Value()
		}
	}
	return names, gpus
}

func labelText(pool *kueue.ResourceFlavor) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(pool.Spec.NodeLabels)) {
		texts = append(texts, strings.TrimPrefix(key, "nvidia.com/")+"="+pool.Spec.NodeLabels[key])
	}
	return strings.Join(texts, " ")
}

// printTable sums up what was seen of every job.
func (s *stage) printTable() {
	fmt.Fprintln(s.Out)
	table := [][]any{{"TRAINJOB", "QUEUE", "FLAVOR", "NODES", "GPUS", "WAITED", "RAN"}}
	for _, r := range s.jobs {
		if len(r.stays) == 0 {
			table = append(table, []any{r, r.queue, "-", "-", "-", "-", "-"})
			continue
		}
		last := r.stays[len(r.stays)-1]
		table = append(table, []any{r, r.queue, strings.Join(r.flavors(), ", "), last.nodes, last.gpus, seconds(r.waited()), seconds(r.ran())})
	}
	s.print(table)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// waited is the time without quota: from submission to admission, and from losing it
// to the next admission.
func (r *record) waited() time.Duration {
	var sum time.Duration
	since := r.submitted
	for _, stay := range r.stays {
		sum += stay.admitted.Sub(since)
		since = stay.ended
	}
	return sum
}

// ran is, for every admission, the time from the first pod's start to the last one's end.
func (r *record) ran() time.Duration {
	var sum time.Duration
	for _, stay := range r.stays {
		pods := stay.pods()
		if len(pods) == 0 {
			continue
		}
		first := slices.MinFunc(pods, func(a, b *podRecord) int { return a.running.Compare(b.running) })
		last := slices.MaxFunc(pods, func(a, b *podRecord) int { return a.over.Compare(b.over) })
		sum += last.over.Sub(first.running)
	}
	return sum
}

// print writes aligned columns. The heading is coloured only then: codes would count as width.
func (s *stage) print(rows [][]any) {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintf(w, "  %v"+strings.Repeat("\t%v", len(cells)-1)+"\n", cells...)
	}
	attempt.Succeed(w.Flush())
	heading, rest, _ := strings.Cut(out.String(), "\n")
	fmt.Fprintf(s.Out, "%s\n%s\n", s.Paint.Bold(heading), rest)
}
