// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// entryless reports TrainJobs that run without an entry of the in-tree integration: when one is evicted, that suspends it
// and keeps its quota because there is no entry to restore (its Stop), and Trainer accepts no new one while a TrainJob runs.
// Those that run in another cluster never have one: they are printed to out, and are no failure.
func entryless(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
	h, jobs, err := list(ctx, c, Of{Namespace: namespace})
	if err != nil || h.served < trainjob.Trainer22 {
		return err
	}
	var failures error
	for i := range jobs {
		job := &jobs[i]
		queued := job.ManagedExternally() || job.Labels[kueueconstants.QueueLabel] != ""
		if !queued || job.Suspended() || job.Finished() || !job.DeletionTimestamp.IsZero() || h.field.Has(&job.Spec) {
			continue
		}
		text := fmt.Sprintf("TrainJob %s/%s runs without an entry of the in-tree integration, which would keep its quota when it is evicted: "+
			"let it end, or run this again as soon as it is suspended", job.Namespace, job.Name)
		if job.ManagedExternally() {
			fmt.Fprintln(out, text)
			continue
		}
		failures = errors.Join(failures, errors.New(text))
	}
	return failures
}
