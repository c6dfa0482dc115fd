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

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// set starts the watches, creates everything but the jobs, and introduces it.
func (s *stage) set(ctx context.Context) error {
	if err := s.follow(ctx); err != nil {
		return err
	}
	for _, obj := range setting() {
		if err := s.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("creating %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
		}
		s.made = append(s.made, obj)
	}
	var nodes corev1.NodeList
	if err := s.client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, node := range nodes.Items {
		s.nodes[node.Name] = node
	}
	if err := s.await(ctx, s.quotaActive()); err != nil {
		return err
	}
	s.start = time.Now()
	return s.introduce()
}

const introduction = `
Two teams, vision and language, share the quota of ClusterQueue gpus on two pools of GPU nodes.
Nodes and their pods are fake (kwok), and the demo says how long a pod computes. Everything else
is real: the API server, its scheduler and controllers, Kueue, Trainer, JobSet, kueue-trainer.

`

// introduce says who is there, as the API server has it.
func (s *stage) introduce() error {
	fmt.Fprint(s.out, introduction)
	t := s.table("POOL", "NODES", "GPUS", "QUOTA", "LABELS nvidia.com/...")
	there := int64(0)
	for _, pool := range pools() {
		nodes, gpus := s.nodesIn(pool.Name)
		there += gpus
		t.row(pool.Name, fmt.Sprintf("%s to %s", nodes[0], nodes[len(nodes)-1]), gpus, quotaOf(s.queue, pool.Name), labelText(pool))
	}
	if err := t.print(); err != nil {
		return err
	}
	t = s.table("TRAINJOB", "QUEUE", "WANTS")
	wanted := int64(0)
	for _, job := range cast() {
		gpus := job.Spec.Trainer.ResourcesPerNode.Requests[kit.GPU]
		wanted += int64(*job.Spec.Trainer.NumNodes) * gpus.Value()
		t.row(job.Namespace+"/"+job.Name, job.Labels[kit.QueueLabel], wants(job))
	}
	if err := t.print(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "Together they want %d GPUs, and there are %d. Seconds, TrainJob, what happens:\n\n", wanted, there)
	return err
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

func quotaOf(queue *kueue.ClusterQueue, flavor string) string {
	for _, group := range queue.Spec.ResourceGroups {
		for _, quotas := range group.Flavors {
			if string(quotas.Name) == flavor {
				return quotas.Resources[0].NominalQuota.String()
			}
		}
	}
	return "-"
}

func labelText(pool *kueue.ResourceFlavor) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(pool.Spec.NodeLabels)) {
		texts = append(texts, strings.TrimPrefix(key, "nvidia.com/")+"="+pool.Spec.NodeLabels[key])
	}
	return strings.Join(texts, " ")
}

// printTable sums up what was seen of every job.
func (s *stage) printTable() error {
	fmt.Fprintln(s.out)
	t := s.table("TRAINJOB", "QUEUE", "FLAVOR", "NODES", "GPUS", "WAITED", "RAN")
	for _, r := range s.jobs {
		if len(r.stays) == 0 {
			t.row(r, r.queue, "-", "-", "-", "-", "-")
			continue
		}
		last := r.stays[len(r.stays)-1]
		t.row(r, r.queue, strings.Join(r.flavors(), ", "), last.nodes(), last.gpus(), seconds(r.waited()), seconds(r.ran()))
	}
	return t.print()
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
		var first, last time.Time
		for _, p := range r.podsOf(stay, "") {
			if first.IsZero() || p.running.Before(first) {
				first = p.running
			}
			if p.over.After(last) {
				last = p.over
			}
		}
		sum += last.Sub(first)
	}
	return sum
}

// table prints aligned columns.
type table struct {
	*tabwriter.Writer
	out *strings.Builder
	to  *stage
}

func (s *stage) table(columns ...any) *table {
	out := &strings.Builder{}
	t := &table{Writer: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), out: out, to: s}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...any) {
	texts := make([]string, 0, len(cells))
	for _, cell := range cells {
		texts = append(texts, fmt.Sprint(cell))
	}
	fmt.Fprintln(t, "  "+strings.Join(texts, "\t"))
}

// print colours the heading only now: codes would count as width.
func (t *table) print() error {
	if err := t.Flush(); err != nil {
		return err
	}
	heading, rest, _ := strings.Cut(t.out.String(), "\n")
	_, err := fmt.Fprintf(t.to.out, "%s\n%s\n", t.to.paint.bold(heading), rest)
	return err
}
