// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/census"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookscope"
)

// tellMetrics registers what is found out at each scrape.
func tellMetrics(mgr ctrl.Manager, env *environment, scope *webhookscope.Scope) {
	counts := &census.Census{Cached: mgr.GetClient(), Leads: mgr.Elected(), Trouble: env.Recorder.Trouble, Labels: env.metrics.QueueLabels, Managed: env.queues.ManagesNamespace}
	env.metrics.Register(
		metrics.NewScraped(counts.Tell, counts.Metrics()...),
		metrics.NewScraped(func(tell metrics.Tell) {
			tellServing(tell, env)
			if all, known := scope.All(); known {
				tell(metrics.WebhooksEveryTrainJob(), metrics.OneIf(all))
			}
		}, metrics.TrainerInfo(), metrics.InTree(), metrics.KueueConfigurationRead(), metrics.SettingDiffers(), metrics.WebhooksEveryTrainJob()))
}

// tellServing tells what this replica goes by.
func tellServing(tell metrics.Tell, env *environment) {
	if version, err := env.trainer.Served(); err == nil {
		tell(metrics.TrainerInfo(), 1, version.String())
	}
	holds := env.inTree.State()
	for _, state := range []string{metrics.InTreeActive, metrics.InTreeOff, metrics.InTreeUnknown} {
		tell(metrics.InTree(), metrics.OneIf(state == holds), state)
	}
	tell(metrics.KueueConfigurationRead(), metrics.OneIf(env.kueue.Readable()))
	for _, differs := range env.kueue.Differ() {
		tell(metrics.SettingDiffers(), 1, differs.Setting)
	}
}

// facts says for people what tellMetrics tells.
func facts(env *environment, scope *webhookscope.Scope) []string {
	trainer, asked, kueue := "unknown", "known to the leader alone", "cannot be read; what was read last holds, or Kueue's defaults"
	if version, err := env.trainer.Served(); err == nil {
		trainer = version.String()
	}
	if all, known := scope.All(); known && all {
		asked = "every TrainJob"
	} else if known {
		asked = "TrainJobs with a queue"
	}
	if env.kueue.Readable() {
		kueue = "read"
	}
	for _, differs := range env.kueue.Differ() {
		kueue += "; overridden: " + differs.Setting
	}
	return []string{
		"Trainer: " + trainer,
		"in-tree integration: " + env.inTree.State(),
		"Kueue's configuration: " + kueue,
		"webhooks are asked about: " + asked,
	}
}

// kueuesMetrics registers Kueue's metrics of jobs, which Kueue records, for other kinds, in its
// own process. They have the labels that Kueue's configuration gives them now; where that
// changes later they are those of this process's next start, as in Kueue.
func kueuesMetrics(ctx context.Context, queues cache.Informers, opts Options) (*kueuelib.CustomLabels, error) {
	labels, err := kueuelib.NewCustomLabels(opts.Kueue.Settings().CustomLabels)
	if err != nil {
		return nil, fmt.Errorf("giving Kueue's metrics the labels of its configuration: %w", err)
	}
	if labels != nil {
		err = followQueues(ctx, queues, func(queue client.Object) { kueuelib.StoreQueue(labels, queue) })
	}
	opts.Metrics.Register(kueuelib.JobMetrics()...)
	return labels, err
}

// followQueues has store called with every version of a ClusterQueue or LocalQueue. What is
// stored of one that is gone stays: it is little, and a Workload may yet name it.
func followQueues(ctx context.Context, queues cache.Informers, store func(client.Object)) error {
	stored := func(obj any) {
		if queue, ok := obj.(client.Object); ok {
			store(queue)
		}
	}
	return watchQueues(ctx, queues, toolscache.ResourceEventHandlerFuncs{
		AddFunc: stored, UpdateFunc: func(_, queue any) { stored(queue) },
	})
}

// forgetQueues drops what was recorded of queues that are gone: tenants may make and delete LocalQueues
// for ever.
func forgetQueues(ctx context.Context, queues cache.Informers, recorder *metrics.Recorder) error {
	return watchQueues(ctx, queues, toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = unseen.Obj
		}
		switch queue := obj.(type) {
		case *kueue.ClusterQueue:
			recorder.ForgetClusterQueue(queue.Name)
		case *kueue.LocalQueue:
			recorder.ForgetLocalQueue(queue.Namespace, queue.Name)
		}
	}})
}

func watchQueues(ctx context.Context, queues cache.Informers, handler toolscache.ResourceEventHandler) error {
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
