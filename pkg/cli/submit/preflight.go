// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// frameworkLabel tells what a runtime is for; a runtime for torchtune brings its trainer.
const (
	frameworkLabel = "trainer.kubeflow.org/framework"
	torchtune      = "torchtune"
)

// preflight looks at what a TrainJob refers to, to say what there is instead. What may not be seen is left to the API server.
type preflight struct {
	client client.Client
	notes  io.Writer // takes what could not be looked at
}

// generation is the cluster's; the newest, as long as the user may not see which.
func (p *preflight) generation(ctx context.Context) (trainjob.TrainerVersion, error) {
	generation, err := cluster.Generation(ctx, p.client)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(p.notes, "note: you may not get CRD %s, so the newest Trainer is assumed: ask an admin for ClusterRole kueue-trainer-queues-viewer\n", trainjob.CRDName)
		return trainjob.Trainer23, nil
	}
	return generation, err
}

// runtime finds the runtime, and reports whether it brings its trainer. The spec is nil if the user may not see it.
func (p *preflight) runtime(ctx context.Context, ref trainer.RuntimeRef, namespace string) (spec *trainer.TrainingRuntimeSpec, builtin bool, err error) {
	rt := &trainer.TrainingRuntime{}
	if *ref.Kind == trainer.TrainingRuntimeKind {
		err = p.find(ctx, *ref.Kind, client.ObjectKey{Namespace: namespace, Name: ref.Name}, rt, &trainer.TrainingRuntimeList{})
	} else {
		shared := &trainer.ClusterTrainingRuntime{}
		err = p.find(ctx, *ref.Kind, client.ObjectKey{Name: ref.Name}, shared, &trainer.ClusterTrainingRuntimeList{})
		*rt = trainer.TrainingRuntime(*shared)
	}
	if rt.Name == "" {
		return nil, false, err
	}
	return &rt.Spec, rt.Labels[frameworkLabel] == torchtune, err
}

// queue looks for the LocalQueue, the priority class and the level of a topology, where they are asked for.
func (p *preflight) queue(ctx context.Context, r *request) error {
	if _, level, asked := strings.Cut(r.topology, "="); asked {
		p.level(ctx, level)
	}
	if r.queue != "" {
		key := client.ObjectKey{Namespace: r.namespace, Name: r.queue}
		var queue kueue.LocalQueue
		if err := p.find(ctx, "LocalQueue", key, &queue, &kueue.LocalQueueList{}); err != nil {
			return err
		}
		p.awaitNew(ctx, &queue)
		p.stopped(ctx, &queue)
	}
	if r.priority != "" {
		return p.find(ctx, "WorkloadPriorityClass", client.ObjectKey{Name: r.priority}, &kueue.WorkloadPriorityClass{}, &kueue.WorkloadPriorityClassList{})
	}
	return nil
}

// level warns of one that no Topology has. One may come, and the TrainJob waits for it.
func (p *preflight) level(ctx context.Context, level string) {
	var topologies kueue.TopologyList
	if err := p.client.List(ctx, &topologies); err != nil {
		fmt.Fprintf(p.notes, "note: topologies could not be looked at: %v\n", err)
		return
	}
	var levels []string
	for i := range topologies.Items {
		levels = append(levels, kueuelib.Levels(&topologies.Items[i])...)
	}
	if slices.Contains(levels, level) {
		return
	}
	slices.Sort(levels)
	there := "there is none"
	if len(levels) > 0 {
		there = "there are: " + strings.Join(slices.Compact(levels), ", ")
	}
	fmt.Fprintf(p.notes, "warning: no topology has level %s; %s: the TrainJob will wait until one has it\n", level, there)
}

// newQueue is how long after its creation a queue may not be active yet, and patience how long that is waited for.
const (
	newQueue = 30 * time.Second
	patience = 3 * time.Second
)

// awaitNew waits a moment for a LocalQueue that was just made, as with its ClusterQueue, to become active.
func (p *preflight) awaitNew(ctx context.Context, queue *kueue.LocalQueue) {
	if time.Since(queue.CreationTimestamp.Time) > newQueue {
		return
	}
	_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
			return false, err
		}
		return meta.IsStatusConditionTrue(queue.Status.Conditions, kueue.LocalQueueActive), nil
	})
}

// stopped warns of a queue that admits nothing. Of a ClusterQueue that may not be read, the LocalQueue says so.
func (p *preflight) stopped(ctx context.Context, queue *kueue.LocalQueue) {
	const until = "the TrainJob will wait until an admin starts it again"
	if policy := ptr.Deref(queue.Spec.StopPolicy, kueue.None); policy != kueue.None {
		fmt.Fprintf(p.notes, "warning: LocalQueue %s is stopped (stopPolicy: %s): %s\n", queue.Name, policy, until)
		return
	}
	var clusterQueue kueue.ClusterQueue
	if p.client.Get(ctx, client.ObjectKey{Name: string(queue.Spec.ClusterQueue)}, &clusterQueue) == nil {
		if policy := ptr.Deref(clusterQueue.Spec.StopPolicy, kueue.None); policy != kueue.None {
			fmt.Fprintf(p.notes, "warning: ClusterQueue %s, which LocalQueue %s leads to, is stopped (stopPolicy: %s): %s\n", clusterQueue.Name, queue.Name, policy, until)
			return
		}
	}
	if active := meta.FindStatusCondition(queue.Status.Conditions, kueue.LocalQueueActive); active != nil && active.Status == metav1.ConditionFalse {
		fmt.Fprintf(p.notes, "warning: LocalQueue %s is not active: %s; the TrainJob will wait until it is\n", queue.Name, active.Message)
	}
}

// find gets an object. Where there is none, the error names those that there are.
func (p *preflight) find(ctx context.Context, kind string, key client.ObjectKey, obj client.Object, list client.ObjectList) error {
	err := p.client.Get(ctx, key, obj)
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		fmt.Fprintf(p.notes, "note: %s %s could not be looked at: %v\n", kind, key.Name, err)
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
	}
	where := ""
	if key.Namespace != "" {
		where = " in namespace " + key.Namespace
	}
	others := ", nor any other"
	if names, err := cluster.Names(ctx, p.client, list, key.Namespace); err != nil {
		others = ""
	} else if len(names) > 0 {
		others = "; there are: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("there is no %s %s%s%s", kind, key.Name, where, others)
}
