// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookscope"
)

// takeOverlooked puts a job into the LocalQueue default that was there when it was made, and that its webhook did not
// give it: the webhooks are asked about TrainJobs without a queue as soon as the leader has
// seen such a queue, and it may have been away. What is older than the queue or than the webhooks is not Kueue's.
func takeOverlooked(ctx context.Context, j *job) result {
	overlooked, err := isOverlooked(ctx, j)
	if err != nil || !overlooked {
		return failed(err)
	}
	defaulted := j.TrainJob.DeepCopy()
	err = jobframework.ApplyDefaultLocalQueueWithManagedJobsNamespaceSelector(ctx, j.env.client, defaulted,
		j.env.queues.HasDefault(ctx), j.env.kueue.Settings().NamespaceSelector())
	queue := string(jobframework.QueueNameForObject(defaulted))
	if err != nil || queue == "" {
		return failed(err)
	}
	if err := jobclient.SetQueue(ctx, j.env.client, &j.TrainJob, queue); err != nil {
		return failed(err)
	}
	j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonOverlooked, jobevents.ActionQueue,
		"Put into LocalQueue %s, which was there when the TrainJob was made without a queue", queue)
	return done(nil)
}

// isOverlooked reports whether the webhooks should have been asked about a job without a queue for the sake of a
// LocalQueue default.
func isOverlooked(ctx context.Context, j *job) (bool, error) {
	if jobframework.QueueNameForObject(&j.TrainJob) != "" {
		return false, nil
	}
	var queue kueue.LocalQueue
	key := client.ObjectKey{Namespace: j.Namespace, Name: string(kueueconstants.DefaultLocalQueueName)}
	if err := j.env.client.Get(ctx, key, &queue); err != nil || j.CreationTimestamp.Before(&queue.CreationTimestamp) {
		return false, client.IgnoreNotFound(err)
	}
	var namespace corev1.Namespace
	if err := j.env.client.Get(ctx, client.ObjectKey{Name: j.Namespace}, &namespace); err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", j.Namespace, err)
	}
	var webhooks admissionregistrationv1.MutatingWebhookConfiguration
	if err := j.env.client.Get(ctx, client.ObjectKey{Name: j.env.webhooks.Mutating}, &webhooks); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	included, err := webhookscope.Includes(&webhooks, &namespace, j.CreationTimestamp)
	if err != nil || !included {
		return false, err
	}
	// They may be for the namespace only since it was labelled so.
	labelled, err := j.env.queues.LabelledAt(ctx, j.Namespace)
	return j.CreationTimestamp.After(labelled), err
}
