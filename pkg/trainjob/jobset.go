// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// JobSetOf returns the JobSet that Trainer made for job, which has its name, or nil.
func JobSetOf(ctx context.Context, c client.Reader, job *TrainJob) (*jobsetapi.JobSet, error) {
	js := &jobsetapi.JobSet{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(job), js); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(js, job) {
		return nil, nil
	}
	return js, nil
}
