// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// probeName names objects that are never stored.
const probeName = "kubectl-trainjob-doctor"

// probe asks the API server what becomes of new objects, as dry runs: whether the
// webhooks of every part answer shows there, wherever they are.
func (l *loader) probe(ctx context.Context, namespace string) {
	f := l.facts
	f.Probes.Flavor = l.client.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: probeName}}, client.DryRunAll)
	f.Probes.JobSet = l.client.Create(ctx, plainJobSet(namespace), client.DryRunAll)
	f.Probes.Job, f.Probes.TrainJob = trainjob.DryRun(ctx, l.client, namespace, trainjob.ProbeQueue)
	for kind, err := range map[Kind]error{flavorProbe: f.Probes.Flavor, jobSetProbe: f.Probes.JobSet, trainJobProbe: f.Probes.TrainJob} {
		if name, _ := failedWebhook(err); err != nil && name == "" {
			f.Unread[kind] = err
		}
	}
}

// plainJobSet is the least that JobSet takes.
func plainJobSet(namespace string) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeName},
		Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{
			Name: "probe", Replicas: 1,
			Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "probe", Image: "probe"}},
			}}}},
		}}},
	}
}
