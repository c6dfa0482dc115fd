// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// check is the AdmissionCheck of config/samples/multikueue.
const check = "workers"

// gpuToleration is what flavors need where Kueue's in-tree integration places the pods.
var gpuToleration = corev1.Toleration{Key: string(kit.GPU), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}

// site is a spec's namespace in one cluster.
type site struct {
	client.Client
	cluster   *kit.Cluster
	name      string
	namespace string
	suffix    string
	made      []client.Object
}

// world is what one spec works in: a namespace and queues of its own in every cluster.
type world struct {
	manager, worker1, worker2 *site
}

// newWorld makes queue "queue" in every cluster, with so many H100s in each worker.
func newWorld(ctx context.Context, gpus1, gpus2 string) *world {
	GinkgoHelper()
	suffix := rand.String(5)
	of := func(c *kit.Cluster, name string) *site {
		return &site{Client: c.Client, cluster: c, name: name, namespace: "fleet-" + suffix, suffix: suffix}
	}
	w := &world{manager: of(fleet.Manager, "manager"), worker1: of(fleet.Workers[0], "worker1"), worker2: of(fleet.Workers[1], "worker2")}
	DeferCleanup(w.leave)
	w.worker1.open(ctx, map[string]string{kit.ProductLabel: kit.H100}, gpus1)
	w.worker2.open(ctx, map[string]string{kit.ProductLabel: kit.H100}, gpus2)
	w.manager.open(ctx, nil, "64", check)
	for _, s := range []*site{w.worker1, w.worker2, w.manager} {
		s.eventuallyOpen(ctx)
	}
	return w
}

// workers of the fleet.
func (w *world) workers() []*site { return []*site{w.worker1, w.worker2} }

// open makes the spec's namespace, a flavor, and a queue of it behind admission checks.
func (s *site) open(ctx context.Context, nodeLabels map[string]string, gpus string, checks ...string) {
	GinkgoHelper()
	flavor := kit.MakeFlavor(s.unique("gpus"), nodeLabels, gpuToleration)
	queue := kit.MakeClusterQueue(s.unique("gpus"), kit.Quota{Flavor: flavor.Name, GPUs: gpus})
	kit.Behind(queue, flavor, checks...)
	s.make(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, flavor, queue, kit.MakeLocalQueue(s.namespace, "queue", queue.Name))
}

// eventuallyOpen waits until Kueue knows where the spec's queue leads.
func (s *site) eventuallyOpen(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var queue kueue.LocalQueue
		g.Expect(s.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "queue"}, &queue)).To(Succeed())
		g.Expect(apimeta.IsStatusConditionTrue(queue.Status.Conditions, kueue.LocalQueueActive)).To(BeTrue(), s.name)
	}).Should(Succeed())
}

// unique makes the name of a cluster-wide object this spec's own.
func (s *site) unique(name string) string { return name + "-" + s.suffix }

// make creates objects that leave takes away again, the last one first.
func (s *site) make(ctx context.Context, objs ...client.Object) {
	GinkgoHelper()
	for _, obj := range objs {
		Expect(s.Create(ctx, obj)).To(Succeed(), "%T %s in %s", obj, obj.GetName(), s.name)
		s.made = append(s.made, obj)
	}
}

// job starts a TrainJob in the spec's queue.
func (s *site) job(name string) *kit.TrainJob {
	return kit.MakeTrainJob(s.namespace, name).Queue("queue").GPUs("8")
}

// copyRuntime makes a runtime of the spec's own in the cluster, like torch-distributed but for a
// change, and returns its name.
func (s *site) copyRuntime(ctx context.Context, change func(*trainer.TrainingRuntimeSpec)) string {
	GinkgoHelper()
	var shipped trainer.ClusterTrainingRuntime
	Expect(s.Get(ctx, client.ObjectKey{Name: "torch-distributed"}, &shipped)).To(Succeed())
	own := &trainer.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: s.unique("torch"), Labels: shipped.Labels}, Spec: *shipped.Spec.DeepCopy()}
	change(&own.Spec)
	s.make(ctx, own)
	// Trainer's webhook asks its cache.
	Eventually(ctx, func() error {
		return s.Create(ctx, kit.MakeTrainJob(s.namespace, "probe").Runtime(own.Name).Obj(), client.DryRunAll)
	}).Should(Succeed())
	return own.Name
}

// leave takes everything away, in the manager cluster first. A spec that failed prints it before.
func (w *world) leave(ctx context.Context) {
	sites := []*site{w.manager, w.worker1, w.worker2}
	if CurrentSpecReport().Failed() {
		for _, s := range sites {
			s.dump(ctx)
		}
	}
	for _, s := range sites {
		Expect(s.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(s.namespace))).To(Succeed())
	}
	for _, s := range sites {
		s.eventuallyEmpty(ctx)
	}
	for _, s := range sites {
		slices.Reverse(s.made)
		for _, obj := range s.made {
			Expect(client.IgnoreNotFound(s.Delete(ctx, obj))).To(Succeed())
		}
	}
}

// eventuallyEmpty waits until nothing of any TrainJob is left.
func (s *site) eventuallyEmpty(ctx context.Context) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&trainer.TrainJobList{}, &kueue.WorkloadList{}, &jobsetapi.JobSetList{}, &corev1.PodList{}} {
		Eventually(ctx, func(g Gomega) {
			g.Expect(s.List(ctx, list, client.InNamespace(s.namespace))).To(Succeed())
			g.Expect(namesOf(list)).To(BeEmpty(), "%T in %s", list, s.name)
		}).Should(Succeed())
	}
}

func namesOf(list client.ObjectList) []string {
	var names []string
	_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
		names = append(names, obj.(client.Object).GetName())
		return nil
	})
	return names
}

// trainJob reads a TrainJob, nil if there is none.
func (s *site) trainJob(ctx context.Context, name string) *trainer.TrainJob {
	GinkgoHelper()
	job := &trainer.TrainJob{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, job)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return job
}

// workload returns the Workload of a TrainJob, nil if there is none.
func (s *site) workload(ctx context.Context, job string) *kueue.Workload {
	GinkgoHelper()
	var list kueue.WorkloadList
	Expect(s.List(ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "TrainJob" && owner.Name == job {
			return &list.Items[i]
		}
	}
	return nil
}

// pods returns the pods of a TrainJob.
func (s *site) pods(ctx context.Context, job string) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(s.List(ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
	return list.Items
}

// ended reports whether a pod holds its node no more, although it may still be there.
func ended(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// activate sets spec.active of a TrainJob's Workload.
func (s *site) activate(ctx context.Context, job string, active bool) {
	GinkgoHelper()
	wl := s.workload(ctx, job)
	Expect(wl).NotTo(BeNil())
	before := wl.DeepCopy()
	wl.Spec.Active = ptr.To(active)
	Expect(s.Patch(ctx, wl, client.MergeFrom(before))).To(Succeed())
}

// finish ends all pods of a TrainJob: "succeeded" or "failed".
func (s *site) finish(ctx context.Context, job, how string) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx, job) {
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "localcluster/finish", how)
		Expect(client.IgnoreNotFound(s.Patch(ctx, &pod, client.MergeFrom(before)))).To(Succeed())
	}
}

// notes returns the notes of the events with a reason on a TrainJob.
func (s *site) notes(ctx context.Context, job, reason string) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(s.List(ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "TrainJob" && e.Regarding.Name == job && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// withoutManagedFields leaves out what nobody reads.
func withoutManagedFields(list client.ObjectList) {
	_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
		obj.(client.Object).SetManagedFields(nil)
		return nil
	})
}

// dump prints what a person would look at first.
func (s *site) dump(ctx context.Context) {
	for _, list := range []client.ObjectList{&trainer.TrainJobList{}, &kueue.WorkloadList{}, &jobsetapi.JobSetList{}, &corev1.PodList{}} {
		if err := s.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			GinkgoWriter.Println("dump:", err)
			continue
		}
		withoutManagedFields(list)
		data, err := yaml.Marshal(list)
		GinkgoWriter.Printf("---- %s: %T\n%s%v\n", s.name, list, data, err)
	}
	var list eventsv1.EventList
	if err := s.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
		GinkgoWriter.Println("dump:", err)
		return
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, e := range list.Items[max(0, len(list.Items)-40):] {
		GinkgoWriter.Printf("%s: %s %s %s/%s %s: %s\n", s.name, e.CreationTimestamp.Format("15:04:05"), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
	}
}
