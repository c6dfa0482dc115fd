// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// What is read of a manager cluster of MultiKueue, and of its workers.
const (
	workerClusters  Kind = "multikueueclusters.kueue.x-k8s.io"
	workerConfigs   Kind = "multikueueconfigs.kueue.x-k8s.io"
	clusterRuntimes Kind = "clustertrainingruntimes.trainer.kubeflow.org"
	ownRuntimes     Kind = "trainingruntimes.trainer.kubeflow.org"
)

// Worker is a worker cluster, with facts as far as they tell whether it goes with the manager cluster.
type Worker struct {
	Name, Context string
	Access        *Access // how Kueue gets there; nil where that may not be read
	*Facts
	Lacks  []rbacv1.PolicyRule // what Kueue of the manager cluster needs there and may not do
	Untold error               // why nothing is known; without a Context, nothing leads there
}

// kubectl makes a command of the manager cluster one of the worker.
func (w *Worker) kubectl(command string) string {
	return strings.Replace(command, "kubectl ", "kubectl --context "+quotedIfNeeded(w.Context)+" ", 1)
}

func (l *loader) fleet(ctx context.Context) {
	f := l.facts
	list(ctx, l, workerClusters, &f.MultiKueueClusters)
	if len(f.MultiKueueClusters) == 0 {
		return
	}
	for _, mkc := range f.MultiKueueClusters {
		f.Workers = append(f.Workers, Worker{Name: mkc.Name, Access: l.access(ctx, mkc.Spec.ClusterSource.KubeConfig)})
	}
	list(ctx, l, workerConfigs, &f.MultiKueueConfigs)
	l.runtimes(ctx)
}

func (l *loader) runtimes(ctx context.Context) {
	var ofAll []trainer.ClusterTrainingRuntime
	list(ctx, l, clusterRuntimes, &ofAll)
	l.facts.Runtimes = kueuelib.Map(ofAll, func(rt *trainer.ClusterTrainingRuntime) trainer.TrainingRuntime { return trainer.TrainingRuntime(*rt) })
	list(ctx, l, ownRuntimes, &l.facts.Runtimes)
}

// loadWorkers reads the workers of a manager cluster, as far as contexts are known to lead there.
func loadWorkers(ctx context.Context, workers *cluster.Workers, f *Facts) {
	for i := range f.Workers {
		w := &f.Workers[i]
		at, c, err := workers.Enter(w.Name)
		w.Context, w.Untold = at.Context, err
		if err != nil {
			continue
		}
		if w.Facts, w.Untold = loadWorker(ctx, at, c, f); w.Untold == nil {
			w.review(ctx, c, f.namespacesOf(w.Name))
		}
	}
}

// review asks the worker what Kueue of the manager cluster may do there, in the namespaces.
func (w *Worker) review(ctx context.Context, c client.Client, namespaces []string) {
	if w.Access == nil || w.Access.User == "" {
		return
	}
	var err error
	if w.Lacks, err = w.Access.lacks(ctx, c, namespaces); err != nil {
		w.Unread[accessReviews] = err
	}
}

func loadWorker(ctx context.Context, at *cluster.Worker, c client.Client, manager *Facts) (*Facts, error) {
	l := newLoader(c, manager.Now)
	l.worker(ctx)
	for _, err := range l.facts.Unread {
		if !cluster.ForRights(err) {
			return nil, at.Problem(err)
		}
	}
	return l.facts, manager.elsewhere(l.facts, at)
}

// worker reads what has to go with the manager cluster.
func (l *loader) worker(ctx context.Context) {
	f := l.facts
	list(ctx, l, crds, &f.CRDs)
	list(ctx, l, mutating, &f.Mutating) // They say where the manager is.
	l.deployed(ctx, managerPart)
	list(ctx, l, namespaceKind, &f.Namespaces)
	list(ctx, l, localQueues, &f.LocalQueues)
	list(ctx, l, clusterQueues, &f.ClusterQueues)
	list(ctx, l, trainJobs, &f.TrainJobs)
	l.runtimes(ctx)
}

// elsewhere returns an error for a context that does not lead to its worker, as far as that shows.
func (f *Facts) elsewhere(there *Facts, at *cluster.Worker) error {
	if uid := there.uidOf(metav1.NamespaceSystem); uid != "" && uid == f.uidOf(metav1.NamespaceSystem) {
		return fmt.Errorf("%s is the manager cluster itself: give the right context with --worker-context %s=CONTEXT", at, at.Cluster)
	}
	for _, wl := range f.Workloads {
		owner := controllerOf(&wl)
		job, copied := inventory.Find(f.TrainJobs, wl.Namespace, owner.Name), inventory.Find(there.TrainJobs, wl.Namespace, owner.Name)
		if cluster.Assigned(&wl) != at.Cluster || job == nil || job.UID != owner.UID || copied == nil || job.Finished() || !job.ForMultiKueue() {
			continue
		}
		if err := at.Check(copied, wl.Name); err != nil {
			return err
		}
	}
	return nil
}

func (f *Facts) uidOf(namespace string) types.UID {
	return ptr.Deref(inventory.Find(f.Namespaces, "", namespace), corev1.Namespace{}).UID
}

// told are the workers of which kinds could be read.
func (f *Facts) told(kinds ...Kind) []*Worker {
	var told []*Worker
	for i := range f.Workers {
		w := &f.Workers[i]
		if w.Untold == nil && !slices.ContainsFunc(kinds, func(kind Kind) bool { return w.Unread[kind] != nil }) {
			told = append(told, w)
		}
	}
	return told
}

// dispatched are the TrainJobs that go, or went, to a worker and are not over.
func (f *Facts) dispatched(worker string) []*trainjob.TrainJob {
	var found []*trainjob.TrainJob
	for i := range f.TrainJobs {
		job := &f.TrainJobs[i]
		queue := f.LocalQueue(job.Namespace, kueue.LocalQueueName(job.Labels[kueueconstants.QueueLabel]))
		if job.ForMultiKueue() && !job.Finished() && queue != nil && f.leadsTo(queue, worker) {
			found = append(found, job)
		}
	}
	return found
}

// leadsTo reports whether a queue leads to a worker, by an AdmissionCheck of MultiKueue.
func (f *Facts) leadsTo(queue *kueue.LocalQueue, worker string) bool {
	cq := f.ClusterQueue(queue.Spec.ClusterQueue)
	return cq != nil && slices.ContainsFunc(inventory.Checks(cq), func(rule kueue.AdmissionCheckStrategyRule) bool {
		check := ptr.Deref(f.MultiKueueCheck(rule.Name), kueue.AdmissionCheck{})
		config := inventory.Find(f.MultiKueueConfigs, "", ptr.Deref(check.Spec.Parameters, kueue.AdmissionCheckParametersReference{}).Name)
		return slices.Contains(ptr.Deref(config, kueue.MultiKueueConfig{}).Spec.Clusters, worker)
	})
}
