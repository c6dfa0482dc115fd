// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
)

// ErrNoRuntime is why there is nothing to ask the API server.
var ErrNoRuntime = errors.New("no runtime that a plain TrainJob can use")

// ProbeQueue is a LocalQueue for dry runs; nobody asks whether it is there.
const ProbeQueue = "dry-run"

// DryRun returns what the webhooks of a cluster make of a plain TrainJob in a queue, or in none, which
// is not stored: it tells who looks after such TrainJobs. Trainer refuses some runtimes
// for a TrainJob as plain as this one, so the first one that it takes decides. They are
// the ClusterTrainingRuntimes and, for clusters without, the TrainingRuntimes of the namespace.
func DryRun(ctx context.Context, c client.Client, namespace, queue string) (*TrainJob, error) {
	var shared trainer.ClusterTrainingRuntimeList
	if err := c.List(ctx, &shared); err != nil {
		return nil, err
	}
	job, refusal := firstTaken(ctx, c, namespace, queue, trainer.ClusterTrainingRuntimeKind, &shared)
	if refusal == nil || !ofTheRuntime(refusal) {
		return job, refusal
	}
	var own trainer.TrainingRuntimeList
	if err := c.List(ctx, &own, client.InNamespace(namespace)); err != nil || len(own.Items) == 0 {
		// Nobody needs these where the others are refused for a reason of their own.
		return nil, refusal
	}
	return firstTaken(ctx, c, namespace, queue, trainer.TrainingRuntimeKind, &own)
}

// firstTaken asks with one runtime after the other.
func firstTaken(ctx context.Context, c client.Client, namespace, queue, kind string, list client.ObjectList) (*TrainJob, error) {
	runtimes, err := apimeta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	refusal := ErrNoRuntime
	for _, runtime := range runtimes {
		// One of any name may be there.
		job := &TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "dry-run-"}}
		if queue != "" {
			job.Labels = map[string]string{kueueconstants.QueueLabel: queue}
		}
		job.Spec.RuntimeRef.Name, job.Spec.RuntimeRef.Kind = runtime.(client.Object).GetName(), &kind
		if refusal = c.Create(ctx, job, client.DryRunAll); refusal == nil {
			return job, nil
		}
		if !ofTheRuntime(refusal) {
			break
		}
	}
	return nil, refusal
}

// ofTheRuntime reports whether another runtime may bring another answer. A webhook that
// cannot be reached, or a timeout, does not depend on it.
func ofTheRuntime(refusal error) bool {
	return errors.Is(refusal, ErrNoRuntime) || apierrors.IsForbidden(refusal) || apierrors.IsInvalid(refusal) || apierrors.IsBadRequest(refusal)
}
