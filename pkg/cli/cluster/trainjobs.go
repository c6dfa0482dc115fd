// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ErrNoTrainJob is why there is nothing to tell of a TrainJob.
var ErrNoTrainJob = errors.New("name another, or its namespace with -n")

// TrainJob reads one; the error is ErrNoTrainJob for one that is not there.
func TrainJob(ctx context.Context, c client.Reader, namespace, name string) (*trainjob.TrainJob, error) {
	var job trainjob.TrainJob
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no TrainJob %s in namespace %s: %w", name, namespace, ErrNoTrainJob)
	case err != nil:
		return nil, Unread("get", "TrainJobs", namespace, err)
	}
	return &job, nil
}

// TrainJobs lists those of a namespace, or of all where it is empty.
func TrainJobs(ctx context.Context, c client.Reader, namespace string, options ...client.ListOption) ([]trainjob.TrainJob, error) {
	var jobs trainjob.List
	if err := c.List(ctx, &jobs, append(options, client.InNamespace(namespace))...); err != nil {
		return nil, Unread("list", "TrainJobs", namespace, err)
	}
	return jobs.Items, nil
}

// VisibleTrainJobs returns all TrainJobs, or, to a user who may not list them, those of a namespace, as far as he may list these.
func VisibleTrainJobs(ctx context.Context, c client.Reader, namespace string) (jobs []trainjob.TrainJob, all bool, err error) {
	for _, in := range []string{"", namespace} {
		jobs, err = TrainJobs(ctx, c, in)
		if exit.Code(err) != exit.Unseen {
			return jobs, in == "", err
		}
	}
	return nil, false, nil
}

// Unread says what to do about objects of a kind that could not be read. That a user may not read
// them is an answer, with an exit code of its own.
func Unread(verb, kind, namespace string, err error) error {
	switch {
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("reading %s: %w", kind, err)
	case namespace == "":
		return exit.With(exit.Unseen, fmt.Errorf("you may not %s %s of all namespaces: name one with -n, or ask an admin for ClusterRole kueue-batch-admin-role", verb, kind))
	}
	return exit.With(exit.Unseen, fmt.Errorf("you may not %s %s in namespace %s: name another with -n, or ask an admin for ClusterRole kueue-trainer-user there", verb, kind, namespace))
}
