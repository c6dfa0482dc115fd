// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// World is what one test works in: a namespace and cluster-wide objects of its own in one cluster.
// What does not come true fails the test, by the Gomega that it was made with.
type World struct {
	client.Client
	Cluster   *Cluster
	Namespace string
	// Suffix keeps names of cluster-wide objects apart.
	Suffix string

	// g is gomega.Default in Ginkgo's specs, gomega.NewWithT in tests, and gomega.NewGomega in programs.
	g    gomega.Gomega
	log  io.Writer
	made []client.Object
}

// NewSuffix returns what tells a test's names from those of others.
func NewSuffix() string { return rand.String(5) }

// New makes a namespace, named by the kind of test and a suffix. The log is for who asks why a test failed.
func New(ctx context.Context, g gomega.Gomega, log io.Writer, cluster *Cluster, kind, suffix string) *World {
	w := &World{Client: cluster.Client, Cluster: cluster, Namespace: kind + "-" + suffix, g: g, log: log, Suffix: suffix}
	w.Make(ctx, kit.Namespace(w.Namespace))
	return w
}

// Name makes the name of a cluster-wide object this world's own.
func (w *World) Name(name string) string { return name + "-" + w.Suffix }

// Make creates objects that Unmake takes away again, the last one first.
func (w *World) Make(ctx context.Context, objs ...client.Object) {
	for _, obj := range objs {
		w.g.Expect(w.Create(ctx, obj)).To(gomega.Succeed(), "%T %s", obj, obj.GetName())
		w.made = append(w.made, obj)
		if runtime, ok := obj.(*trainer.ClusterTrainingRuntime); ok {
			// Trainer's webhook asks its cache.
			w.g.Eventually(ctx, func() error {
				return w.Create(ctx, kit.TrainJob(w.Namespace, "probe").Runtime(runtime.Name).Obj(), client.DryRunAll)
			}).Should(gomega.Succeed())
		}
	}
}

// MakeYAML creates an object from a manifest as it is, in the world's namespace.
func (w *World) MakeYAML(ctx context.Context, manifest string) {
	obj := &unstructured.Unstructured{}
	w.g.Expect(yaml.Unmarshal([]byte(manifest), &obj.Object)).To(gomega.Succeed())
	obj.SetNamespace(w.Namespace)
	w.Make(ctx, obj)
}

// MakeNeeds makes what the pods of a ClusterTrainingRuntime need in their namespace: ServiceAccounts, and volume claims
// where the JobSet does not make them, as with Trainer 2.1.
func (w *World) MakeNeeds(ctx context.Context, runtime string) {
	var r trainer.ClusterTrainingRuntime
	w.Read(ctx, &r, runtime)
	var needs []client.Object
	for _, rj := range r.Spec.Template.Spec.ReplicatedJobs {
		pod := &rj.Template.Spec.Template.Spec
		if pod.ServiceAccountName != "" {
			needs = append(needs, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod.ServiceAccountName}})
		}
		for _, volume := range pod.Volumes {
			if claim := volume.PersistentVolumeClaim; claim != nil {
				needs = append(needs, kit.Claim(w.Namespace, claim.ClaimName))
			}
		}
	}
	for _, need := range needs {
		// Another replicated job or runtime may need the same.
		if err := w.Get(ctx, client.ObjectKeyFromObject(need), need.DeepCopyObject().(client.Object)); apierrors.IsNotFound(err) {
			w.Make(ctx, need)
		}
	}
}

// Pools makes flavors h100 and a100, a ClusterQueue with quotas for them in this order, and LocalQueue "queue".
func (w *World) Pools(ctx context.Context, h100GPUs, a100GPUs string, tolerations ...corev1.Toleration) {
	w.Make(ctx,
		w.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}, tolerations...),
		w.Flavor("a100", map[string]string{kit.ProductLabel: kit.A100}, tolerations...),
		kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: h100GPUs}, kit.Quota{Flavor: w.Name("a100"), GPUs: a100GPUs}),
		w.LocalQueue(),
	)
}

// Pool makes LocalQueue "queue" in the world's namespace, whose ClusterQueue "gpus" has one flavor.
func (w *World) Pool(ctx context.Context, flavor *kueue.ResourceFlavor, gpus string, checks ...string) {
	w.Make(ctx, kit.Queue(w.LocalQueue(), flavor, kit.Quota{GPUs: gpus}, checks...)...)
}

// Flavor builds a flavor of tainted GPU nodes, which for Kueue's in-tree integration has to tolerate the taint.
func (w *World) Flavor(name string, nodeLabels map[string]string, tolerations ...corev1.Toleration) *kueue.ResourceFlavor {
	if w.Cluster.Integration != External && !slices.Contains(tolerations, kit.GPUToleration()) {
		tolerations = append(slices.Clone(tolerations), kit.GPUToleration())
	}
	return kit.Flavor(w.Name(name), nodeLabels, tolerations...)
}

// LocalQueue names the world's own.
func (w *World) LocalQueue() *kueue.LocalQueue {
	return kit.LocalQueue(w.Namespace, "queue", w.Name("gpus"))
}

// Job starts a TrainJob in the world's queue.
func (w *World) Job(name string) *kit.TrainJobBuilder {
	return kit.TrainJob(w.Namespace, name).Queue("queue")
}

// CopyRuntime returns one of Trainer's own runtimes under a name of this world, with changes.
func (w *World) CopyRuntime(ctx context.Context, name string, changes ...kit.RuntimeChange) *trainer.ClusterTrainingRuntime {
	var shipped trainer.ClusterTrainingRuntime
	w.Read(ctx, &shipped, name)
	own := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: w.Name(name), Labels: shipped.Labels}, Spec: shipped.Spec}
	for _, change := range changes {
		change(&own.Spec)
	}
	return own
}

// MakeRuntime makes what CopyRuntime returns, and returns its name.
func (w *World) MakeRuntime(ctx context.Context, name string, changes ...kit.RuntimeChange) string {
	runtime := w.CopyRuntime(ctx, name, changes...)
	w.Make(ctx, runtime)
	return runtime.Name
}

// AllowTenant makes a user the namespace's admin, who has runtimes of its own, deletes more at a time, and resizes pods.
func (w *World) AllowTenant(ctx context.Context, user string) {
	w.Make(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "sweeper"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainingruntimes"}, Verbs: []string{"*"}},
			{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainjobs"}, Verbs: []string{"deletecollection"}},
			{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets"}, Verbs: []string{"deletecollection"}},
			{APIGroups: []string{""}, Resources: []string{"bindings", "pods/binding"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"pods/resize", "pods/ephemeralcontainers"}, Verbs: []string{"patch"}},
		},
	})
	for _, role := range []string{"Role/sweeper", "admin", "kueue-batch-admin-role"} {
		w.Make(ctx, kit.RoleBinding(w.Namespace, role, user))
	}
}

// Token returns one of a new ServiceAccount, which lasts for hours and has a ClusterRole, or none.
func (w *World) Token(ctx context.Context, clusterRole string) string {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "reader-"}}
	w.Make(ctx, account)
	if clusterRole != "" {
		w.Make(ctx, kit.ClusterRoleBinding(w.Name(account.Name), clusterRole, kit.Account(w.Namespace, account.Name)))
	}
	request := &authenticationv1.TokenRequest{}
	w.g.Expect(w.SubResource("token").Create(ctx, account, request)).To(gomega.Succeed())
	return request.Status.Token
}

// Read reads an object of the world's namespace, or a cluster-wide one.
func (w *World) Read(ctx context.Context, obj client.Object, name string) {
	w.g.Expect(w.read(ctx, obj, name)).To(gomega.Succeed(), "%T %s", obj, name)
}

// All fills a list and returns it.
func All[L client.ObjectList](ctx context.Context, g gomega.Gomega, c client.Reader, list L, options ...client.ListOption) L {
	g.Expect(c.List(ctx, list, options...)).To(gomega.Succeed())
	return list
}

// Found reads an object, in whatever namespace, and returns it.
func Found[T client.Object](ctx context.Context, g gomega.Gomega, c client.Reader, obj T, key client.ObjectKey) T {
	g.Expect(c.Get(ctx, key, obj)).To(gomega.Succeed())
	return obj
}

func (w *World) read(ctx context.Context, obj client.Object, name string) error {
	key := client.ObjectKey{Name: name}
	namespaced, err := w.IsObjectNamespaced(obj)
	if namespaced {
		key.Namespace = w.Namespace
	}
	return errors.Join(err, readAgain(ctx, w, key, obj))
}

// readAgain reads an object whole: what is read into a type leaves alone what it has not.
func readAgain(ctx context.Context, c client.Client, key client.ObjectKey, obj client.Object) error {
	if _, raw := obj.(*unstructured.Unstructured); !raw {
		reflect.ValueOf(obj).Elem().SetZero()
	}
	return c.Get(ctx, key, obj)
}

// TrainJob returns a TrainJob.
func (w *World) TrainJob(ctx context.Context, name string) *trainer.TrainJob {
	var job trainer.TrainJob
	w.Read(ctx, &job, name)
	return &job
}

// Node returns a node.
func (w *World) Node(ctx context.Context, name string) *corev1.Node {
	var node corev1.Node
	w.Read(ctx, &node, name)
	return &node
}

// Workload returns the Workload of a TrainJob, or nil.
func (w *World) Workload(ctx context.Context, job string) *kueue.Workload {
	var list kueue.WorkloadList
	w.list(ctx, &list)
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "TrainJob" && owner.Name == job {
			return &list.Items[i]
		}
	}
	return nil
}

// Pods returns the pods of a TrainJob, those on their way out included.
func (w *World) Pods(ctx context.Context, job string) []corev1.Pod {
	var list corev1.PodList
	w.list(ctx, &list, client.MatchingLabels{jobsetapi.JobSetNameKey: job})
	return list.Items
}

// ChildJobs returns the Jobs that JobSet has made of a TrainJob.
func (w *World) ChildJobs(ctx context.Context, job string) []batchv1.Job {
	var list batchv1.JobList
	w.list(ctx, &list, client.MatchingLabels{jobsetapi.JobSetNameKey: job})
	return list.Items
}

// list reads objects of the world's namespace.
func (w *World) list(ctx context.Context, list client.ObjectList, opts ...client.ListOption) {
	w.g.Expect(w.List(ctx, list, append(opts, client.InNamespace(w.Namespace))...)).To(gomega.Succeed())
}

// DeleteJobs deletes all TrainJobs, whose pods end at once.
func (w *World) DeleteJobs(ctx context.Context) {
	var pods corev1.PodList
	w.list(ctx, &pods)
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Annotations[kit.TerminateAfter] != "" {
			before := pod.DeepCopy()
			delete(pod.Annotations, kit.TerminateAfter)
			w.g.Expect(client.IgnoreNotFound(w.Patch(ctx, pod, client.MergeFrom(before)))).To(gomega.Succeed())
		}
	}
	w.g.Expect(w.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(w.Namespace))).To(gomega.Succeed())
}

// EventuallyEmpty waits until nothing of any TrainJob is left.
func (w *World) EventuallyEmpty(ctx context.Context) {
	w.EventuallyNo(ctx, &trainer.TrainJobList{}, &kueue.WorkloadList{}, &jobsetapi.JobSetList{}, &corev1.PodList{})
}

// EventuallyNo waits until nothing of these kinds is left.
func (w *World) EventuallyNo(ctx context.Context, lists ...client.ObjectList) {
	w.g.Eventually(ctx, func(g gomega.Gomega) {
		for _, list := range lists {
			g.Expect(w.Names(ctx, list)).To(gomega.BeEmpty(), "%T %s", list, w.Cluster.Name)
		}
	}).Should(gomega.Succeed())
}

// Own has Unmake delete an object that somebody else has made.
func (w *World) Own(obj client.Object) { w.made = append(w.made, obj) }

// Unmake deletes what Make has made, the last one first. Namespaces stay on a local control plane,
// which goes itself: for each, a fifth of all requests of a test would ask for kinds that it has none of.
func (w *World) Unmake(ctx context.Context) {
	for _, obj := range slices.Backward(w.made) {
		if _, ok := obj.(*corev1.Namespace); ok && w.Cluster.Local() {
			continue
		}
		w.g.Expect(client.IgnoreNotFound(w.Delete(ctx, obj))).To(gomega.Succeed())
	}
}
