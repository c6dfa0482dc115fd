// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// SetupIndexes adds the field indexes, which have to be there before the caches start.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := jobframework.SetupWorkloadOwnerIndex(ctx, indexer, trainjob.GVK); err != nil {
		return fmt.Errorf("indexing Workloads by TrainJob: %w", err)
	}
	if err := indexer.IndexField(ctx, &batchv1.Job{}, JobSetIndex, jobSetOf); err != nil {
		return fmt.Errorf("indexing Jobs by JobSet: %w", err)
	}
	return nil
}

// JobSetIndex is the index of child Jobs by the name of their JobSet. Caches have none of
// labels: a list by them looks at every Job of the namespace.
const JobSetIndex = "jobSet"

func jobSetOf(child client.Object) []string {
	if name, ok := child.GetLabels()[jobsetapi.JobSetNameKey]; ok {
		return []string{name}
	}
	return nil
}
