// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// Standing is what this replica goes by.
type Standing struct {
	Trainer *peers.Trainer
	InTree  *peers.InTree
	Kueue   *kueueconfig.Follower
	Scope   *webhookconfig.Scope
}

// Tell tells metrics.TrainerInfo, InTree, KueueConfigurationRead, SettingDiffers and WebhooksEveryTrainJob.
func (s *Standing) Tell(tell metrics.Tell) {
	if version, err := s.Trainer.Served(); err == nil {
		tell(metrics.TrainerInfo, 1, version.String())
	}
	holds := s.InTree.State()
	for _, state := range []string{metrics.InTreeActive, metrics.InTreeOff, metrics.InTreeUnknown} {
		tell(metrics.InTree, metrics.OneIf(state == holds), state)
	}
	tell(metrics.KueueConfigurationRead, metrics.OneIf(s.Kueue.Readable()))
	for _, differs := range s.Kueue.Differ() {
		tell(metrics.SettingDiffers, 1, differs.Setting)
	}
	if all, known := s.Scope.All(); known {
		tell(metrics.WebhooksEveryTrainJob, metrics.OneIf(all))
	}
}

// Facts says for people what Tell tells, a line for each.
func (s *Standing) Facts() []string {
	trainer, asked, kueue := "unknown", "known to the leader alone", "cannot be read; what was read last holds, or Kueue's defaults"
	if version, err := s.Trainer.Served(); err == nil {
		trainer = version.String()
	}
	if all, known := s.Scope.All(); known && all {
		asked = "every TrainJob"
	} else if known {
		asked = "TrainJobs with a queue"
	}
	if s.Kueue.Readable() {
		kueue = "read, as of resourceVersion " + s.Kueue.Version()
	}
	for _, differs := range s.Kueue.Differ() {
		kueue += "; overridden: " + differs.Setting
	}
	return []string{
		"Trainer: " + trainer,
		"in-tree integration: " + s.InTree.State(),
		"Kueue's configuration: " + kueue,
		"webhooks are asked about: " + asked,
	}
}

// RegisterKueues registers Kueue's metrics of jobs, which Kueue records, for other kinds, in its
// own process. They have the labels that Kueue's configuration gives them now; where that
// changes later they are those of this process's next start, as in Kueue.
func RegisterKueues(ctx context.Context, queues cache.Cache, settings *kueueconfig.Follower, recorder *metrics.Recorder) (*kueuelib.CustomLabels, error) {
	labels, err := kueuelib.NewCustomLabels(settings.Settings().CustomLabels)
	if err != nil {
		return nil, fmt.Errorf("giving Kueue's metrics the labels of its configuration: %w", err)
	}
	store := func(client.Object) {}
	if labels != nil {
		store = func(queue client.Object) { kueuelib.StoreQueue(labels, queue) }
	}
	recorder.Register(kueuelib.JobMetrics()...)
	recorder.There = isThere(ctx, queues)
	return labels, followQueues(ctx, queues, store, recorder)
}

// isThere reports of a LocalQueue whether a cache has it.
func isThere(ctx context.Context, cached client.Reader) func(namespace, name string) bool {
	return func(namespace, name string) bool {
		return !apierrors.IsNotFound(cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &kueue.LocalQueue{}))
	}
}

// followQueues has store called with every version of a ClusterQueue or LocalQueue, and drops what recorder and Kueue's
// metrics have of queues that are gone: tenants may make and delete LocalQueues for ever. What is stored of one that is
// gone stays: it is little, and a Workload may yet name it.
func followQueues(ctx context.Context, queues cache.Informers, store func(client.Object), recorder *metrics.Recorder) error {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(queue any) { store(queue.(client.Object)) },
		UpdateFunc: func(_, queue any) { store(queue.(client.Object)) },
		DeleteFunc: func(obj any) {
			if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			switch queue := obj.(type) {
			case *kueue.ClusterQueue:
				recorder.ForgetClusterQueue(queue.Name)
				kueuelib.ForgetClusterQueue(queue.Name)
			case *kueue.LocalQueue:
				recorder.ForgetLocalQueue(queue.Namespace, queue.Name)
				kueuelib.ForgetLocalQueue(queue.Namespace, queue.Name)
			}
		},
	}
	for _, kind := range []client.Object{&kueue.ClusterQueue{}, &kueue.LocalQueue{}} {
		informer, err := queues.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("caching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("following %T: %w", kind, err)
		}
	}
	return nil
}
