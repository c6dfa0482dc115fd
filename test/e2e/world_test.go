// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
)

// world is what one spec works in: a namespace and cluster-wide objects of its own.
type world struct {
	client.Client

	namespace string
	// suffix keeps names of cluster-wide objects apart.
	suffix string
	made   []client.Object

	// ledger compares the pods with what their jobs are charged for, in every spec.
	ledger *ledger.Ledger
	// inactive and outside are what it puts up with; see ledger_test.go.
	inactive bool
	outside  string
}

// newWorld makes a namespace, and takes everything away after the spec; a spec that
// failed prints it first.
func newWorld(ctx context.Context) *world {
	suffix := rand.String(5)
	w := &world{Client: cluster.Client, suffix: suffix, namespace: "e2e-" + suffix}
	Expect(w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})).To(Succeed())
	w.openLedger(ctx)
	DeferCleanup(w.leave)
	return w
}

// make creates objects that leave takes away again, the last one first.
func (w *world) make(ctx context.Context, objs ...client.Object) {
	GinkgoHelper()
	for _, obj := range objs {
		Expect(w.Create(ctx, obj)).To(Succeed(), "%T %s", obj, obj.GetName())
		w.made = append(w.made, obj)
		if runtime, ok := obj.(*trainer.ClusterTrainingRuntime); ok {
			w.eventuallyKnown(ctx, runtime.Name)
		}
	}
}

// eventuallyKnown waits until Trainer's webhook has heard of a runtime; it asks its cache.
func (w *world) eventuallyKnown(ctx context.Context, runtime string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		return w.Create(ctx, kit.MakeTrainJob(w.namespace, "probe").Runtime(runtime).Obj(), client.DryRunAll)
	}).Should(Succeed())
}

// eventuallyGone waits until a deleted object is no more: while its finalizers hold it,
// nothing of its name can be made.
func (w *world) eventuallyGone(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		return apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object)))
	}).Should(BeTrue(), "%T %s", obj, obj.GetName())
}

// name makes the name of a cluster-wide object this spec's own.
func (w *world) name(name string) string { return name + "-" + w.suffix }

func (w *world) leave(ctx context.Context) {
	defer w.ledger.Close()
	problem := InterceptGomegaFailure(func() { w.audit(ctx) })
	if CurrentSpecReport().Failed() || problem != nil {
		w.dump(ctx)
	}
	Expect(w.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(w.namespace))).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(w.count(ctx, &trainer.TrainJobList{})).To(BeZero(), "TrainJobs")
		g.Expect(w.count(ctx, &kueue.WorkloadList{})).To(BeZero(), "Workloads")
		g.Expect(w.count(ctx, &corev1.PodList{})).To(BeZero(), "Pods")
	}).Should(Succeed())
	slices.Reverse(w.made)
	for _, obj := range w.made {
		Expect(client.IgnoreNotFound(w.Delete(ctx, obj))).To(Succeed())
	}
	Expect(w.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})).To(Succeed())
	Expect(problem).NotTo(HaveOccurred())
}

func (w *world) count(ctx context.Context, list client.ObjectList) (int, error) {
	if err := w.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
		return -1, err
	}
	switch l := list.(type) {
	case *trainer.TrainJobList:
		return len(l.Items), nil
	case *kueue.WorkloadList:
		return len(l.Items), nil
	case *corev1.PodList:
		return len(l.Items), nil
	}
	return -1, fmt.Errorf("unexpected list %T", list)
}

// pools makes the flavors h100 and a100, a ClusterQueue with quotas for them in this
// order, and LocalQueue "queue" in the spec's namespace.
func (w *world) pools(ctx context.Context, h100GPUs, a100GPUs string, tolerations ...corev1.Toleration) {
	GinkgoHelper()
	w.make(ctx,
		w.flavor("h100", map[string]string{kit.ProductLabel: kit.H100}, tolerations...),
		w.flavor("a100", map[string]string{kit.ProductLabel: kit.A100}, tolerations...),
		kit.MakeClusterQueue(w.name("gpus"), kit.Quota{Flavor: w.name("h100"), GPUs: h100GPUs}, kit.Quota{Flavor: w.name("a100"), GPUs: a100GPUs}),
		kit.MakeLocalQueue(w.namespace, "queue", w.name("gpus")),
	)
}

// flavor makes a flavor of tainted GPU nodes. Kueue's in-tree integration adds no
// toleration of its own, so its admins give one to the flavor.
func (w *world) flavor(name string, nodeLabels map[string]string, tolerations ...corev1.Toleration) *kueue.ResourceFlavor {
	if cluster.Integration != kit.External && !slices.Contains(tolerations, gpuToleration) {
		tolerations = append(slices.Clone(tolerations), gpuToleration)
	}
	return kit.MakeFlavor(w.name(name), nodeLabels, tolerations...)
}

// job starts a TrainJob in the spec's queue.
func (w *world) job(name string) *kit.TrainJob {
	return kit.MakeTrainJob(w.namespace, name).Queue("queue")
}

// get reads an object of the spec's namespace again.
func get[T client.Object](ctx context.Context, w *world, obj T, name string) T {
	GinkgoHelper()
	Expect(w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, obj)).To(Succeed())
	return obj
}

// workload returns the Workload of a TrainJob, or nil.
func (w *world) workload(ctx context.Context, job string) *kueue.Workload {
	GinkgoHelper()
	var list kueue.WorkloadList
	Expect(w.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "TrainJob" && owner.Name == job {
			return &list.Items[i]
		}
	}
	return nil
}

// pods returns the pods of a TrainJob, those on their way out included.
func (w *world) pods(ctx context.Context, job string) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(w.List(ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
	return list.Items
}

// node returns a node.
func (w *world) node(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	var node corev1.Node
	Expect(w.Get(ctx, client.ObjectKey{Name: name}, &node)).To(Succeed())
	return &node
}

// finish ends all pods of a TrainJob, or of one of its replicated jobs: "succeeded" or "failed".
func (w *world) finish(ctx context.Context, job, how string, replicatedJob ...string) {
	GinkgoHelper()
	for _, pod := range w.pods(ctx, job) {
		if len(replicatedJob) > 0 && pod.Labels[jobsetapi.ReplicatedJobNameKey] != replicatedJob[0] {
			continue
		}
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "localcluster/finish", how)
		err := w.Patch(ctx, &pod, client.MergeFrom(before))
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	}
}

// update changes a TrainJob as the admin.
func (w *world) update(ctx context.Context, name string, change func(*trainer.TrainJob)) {
	GinkgoHelper()
	Expect(w.tryUpdate(ctx, name, change)).To(Succeed())
}

// tryUpdate changes a TrainJob as the admin, again when somebody else was faster, and
// gives the API server's answer.
func (w *world) tryUpdate(ctx context.Context, name string, change func(*trainer.TrainJob)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var job trainer.TrainJob
		if err := w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, &job); err != nil {
			return err
		}
		change(&job)
		return w.Update(ctx, &job)
	})
}

// dump prints what a person would look at first.
func (w *world) dump(ctx context.Context) {
	for _, gvk := range []schema.GroupVersionKind{
		trainer.GroupVersion.WithKind("TrainJobList"), kueue.SchemeGroupVersion.WithKind("WorkloadList"),
		jobsetapi.SchemeGroupVersion.WithKind("JobSetList"), batchv1.SchemeGroupVersion.WithKind("JobList"),
		corev1.SchemeGroupVersion.WithKind("PodList"),
	} {
		obj, err := w.Scheme().New(gvk)
		if err != nil {
			GinkgoWriter.Println("dump:", err)
			continue
		}
		list := obj.(client.ObjectList)
		if err := w.List(ctx, list, client.InNamespace(w.namespace)); err != nil {
			GinkgoWriter.Println("dump:", err)
			continue
		}
		data, err := yaml.Marshal(list)
		GinkgoWriter.Printf("---- %s\n%s%v\n", gvk.Kind, data, err)
	}
	w.dumpEvents(ctx)
}

func (w *world) dumpEvents(ctx context.Context) {
	var list eventsv1.EventList
	if err := w.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		GinkgoWriter.Println("dump:", err)
		return
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, e := range list.Items[max(0, len(list.Items)-40):] {
		GinkgoWriter.Printf("%s %s %s/%s %s: %s\n", e.CreationTimestamp.Format("15:04:05"), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
	}
}
