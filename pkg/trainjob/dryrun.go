// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
)

// errNoRuntime is why there is nothing to ask the API server.
var errNoRuntime = errors.New("no ClusterTrainingRuntime that a plain TrainJob can use")

// DryRun gives what the webhooks of a cluster make of a plain TrainJob in a queue, which
// is not stored: it tells who looks after such TrainJobs. Trainer refuses some runtimes
// for a TrainJob as plain as this one, so the first one that it takes decides.
func DryRun(ctx context.Context, c client.Client, namespace string) (*TrainJob, error) {
	var runtimes trainer.ClusterTrainingRuntimeList
	if err := c.List(ctx, &runtimes); err != nil {
		return nil, err
	}
	refusal := errNoRuntime
	for i := range runtimes.Items {
		job := &TrainJob{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "dry-run", Labels: map[string]string{kueueconstants.QueueLabel: "dry-run"},
		}}
		job.Spec.RuntimeRef.Name = runtimes.Items[i].Name
		if refusal = c.Create(ctx, job, client.DryRunAll); refusal == nil {
			return job, nil
		}
	}
	return nil, refusal
}
