// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// quota is the GPUs of the ClusterQueue that tenant and neighbour share, and of each job.
const quota = "8"

// mostPods is the limit of a walk's pods, beyond which none are made.
const mostPods = 40

// walk is a tenant in a namespace of his own, who shares a ClusterQueue with a neighbour.
type walk struct {
	*world.World
	symbols
	neighbour *world.World
	asTenant  dynamic.Interface
	resources []resource
	ledger    *ledger.Ledger
	log       io.Writer
	// unhindered is how long a job takes to start that waits for nobody: a slow machine is slow for all.
	unhindered time.Duration
	// written are the objects that the tenant can write.
	written *record.Recorder
	// stop ends what watches.
	stop context.CancelFunc
	// sent counts the requests.
	sent atomic.Int64
	// beside is how many actions are repeated beside all else, until calm is called.
	beside   int
	repeated context.Context
	calm     context.CancelFunc
}

// newWalk makes the namespaces, their queues, a runtime of the tenant's, and a job of the neighbour's that has a
// quota of its own and that nobody is to touch.
func newWalk(ctx context.Context, g gomega.Gomega, cluster *world.Cluster, log io.Writer) *walk {
	w := &walk{World: world.New(ctx, g, log, cluster, "adversary", world.NewSuffix()), log: log}
	w.symbols = symbols{namespace: w.Namespace, suffix: w.Suffix, tenant: "tenant-" + w.Suffix}
	w.Pool(ctx, w.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}), quota)
	w.neighbour = world.New(ctx, g, log, cluster, w.Namespace, "neighbour")
	w.Make(ctx, kit.LocalQueue(w.neighbour.Namespace, "queue", w.Name("gpus")),
		kit.ClusterQueue(w.Name("own"), kit.Quota{Flavor: w.Name("h100"), GPUs: quota}), kit.LocalQueue(w.neighbour.Namespace, "own", w.Name("own")),
		kit.Priority(w.Name("high"), 10), kit.Priority(w.Name("highest"), 1000),
		w.neighbour.Job("bystander").Queue("own").GPUs(quota).Obj(), limits(w.Namespace))
	w.AllowTenant(ctx, w.tenant)
	w.Make(ctx, ofTwo(w.CopyRuntime(ctx, "torch-distributed"), w.Namespace))

	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = rest.NoWarnings{}
	// A tenant's clients have the limits that he gives them.
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: w.tenant, Groups: []string{"system:authenticated"}}
	g.Eventually(ctx, func() (err error) { w.resources, err = resourcesOf(ctx, config, w.Namespace); return err }).Should(gomega.Succeed())
	g.Expect(w.watch(ctx, config)).To(gomega.Succeed())
	return w
}

// watch has everything recorded that the tenant brings about.
func (w *walk) watch(ctx context.Context, asTenant *rest.Config) (err error) {
	if w.asTenant, err = dynamic.NewForConfig(asTenant); err != nil {
		return err
	}
	admin, err := dynamic.NewForConfig(w.Cluster.Config)
	if err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.repeated, w.calm = context.WithCancel(ctx)
	if w.ledger, err = ledger.Watch(ctx, admin, w.Namespace, w.neighbour.Namespace); err != nil {
		return err
	}
	w.written, err = record.Start(ctx, admin, watched(w.resources, w.Namespace), func(record.Version) {})
	return err
}

// limits keep a tenant from filling the machine that this runs on.
func limits(namespace string) client.Object {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limits"},
		Spec:       corev1.ResourceQuotaSpec{Hard: kit.Amounts("pods", strconv.Itoa(mostPods), "count/jobs.batch", "40", "count/jobsets.jobset.x-k8s.io", "20")},
	}
}

// ofTwo is a runtime of two replicated jobs, whose quota can be reclaimed one by one.
func ofTwo(copied *trainer.ClusterTrainingRuntime, namespace string) client.Object {
	own := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "two", Labels: copied.Labels}, Spec: copied.Spec}
	jobs := &own.Spec.Template.Spec.ReplicatedJobs
	side := (*jobs)[0].DeepCopy()
	side.Name, side.Template.Labels = "b-node", nil
	side.Template.Spec.Template.Spec.Containers[0].Resources = kit.GPUResources("4")
	*jobs = append(*jobs, *side)
	return own
}

// watched are the kinds of resources in a namespace that can be watched.
func watched(resources []resource, namespace string) (kinds []record.Kind) {
	for _, r := range resources {
		if r.watched {
			kinds = append(kinds, record.Kind{GroupVersionResource: r.GroupVersionResource, Namespace: namespace})
		}
	}
	return kinds
}

// seen returns the objects of the namespace, in an order that does not depend on chance.
func (w *walk) seen() []*unstructured.Unstructured {
	return slices.SortedFunc(slices.Values(w.written.Live()), func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// close takes everything away, and does not wait for it.
func (w *walk) close(ctx context.Context) {
	w.stop()
	w.ledger.Close()
	w.Unmake(ctx)
}
