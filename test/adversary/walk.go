// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	mergepatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// quota is the GPUs of the ClusterQueue that tenant and neighbour share, and of each job.
const quota = "8"

// walk is a tenant in a namespace of his own, who shares a ClusterQueue with a neighbour.
type walk struct {
	*world.World
	symbols
	// neighbours is the neighbour's namespace.
	neighbours string
	admin      dynamic.Interface
	asTenant   dynamic.Interface
	resources  []resource
	ledger     *ledger.Ledger
	log        io.Writer

	mu   sync.Mutex
	live map[types.UID]*unstructured.Unstructured
	// stop ends what watches.
	stop context.CancelFunc
}

// newWalk makes the namespaces, their queues, a runtime of the tenant's, and a job of the neighbour's that has a
// quota of its own and that nobody is to touch.
func newWalk(ctx context.Context, g gomega.Gomega, cluster *world.Cluster, log io.Writer) *walk {
	w := &walk{World: world.New(ctx, g, log, cluster, "adversary", world.NewSuffix()), live: map[types.UID]*unstructured.Unstructured{}, log: log}
	w.symbols = symbols{namespace: w.Namespace, suffix: w.Suffix, tenant: "tenant-" + w.Suffix}
	w.neighbours = w.Namespace + "-neighbour"
	w.Pool(ctx, w.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}), quota)
	w.Make(ctx, kit.Namespace(w.neighbours), kit.LocalQueue(w.neighbours, "queue", w.Name("gpus")),
		kit.ClusterQueue(w.Name("own"), kit.Quota{Flavor: w.Name("h100"), GPUs: quota}), kit.LocalQueue(w.neighbours, "own", w.Name("own")),
		kit.Priority(w.Name("high"), 10), kit.Priority(w.Name("highest"), 1000),
		kit.TrainJob(w.neighbours, "bystander").Queue("own").GPUs(quota).Obj(), limits(w.Namespace))
	w.AllowTenant(ctx, w.tenant)
	var shipped trainer.ClusterTrainingRuntime
	w.Read(ctx, &shipped, "torch-distributed")
	w.Make(ctx, ofTwo(&shipped, w.Namespace))

	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate = rest.ImpersonationConfig{UserName: w.tenant, Groups: []string{"system:authenticated"}}
	var err error
	w.asTenant, err = dynamic.NewForConfig(config)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	w.admin, err = dynamic.NewForConfig(cluster.Config)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Eventually(ctx, func() (err error) { w.resources, err = resourcesOf(ctx, config, w.Namespace); return err }).Should(gomega.Succeed())
	ctx, w.stop = context.WithCancel(ctx)
	w.ledger, err = ledger.Watch(ctx, w.admin, w.Namespace, w.neighbours)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	g.Expect(w.watch(ctx)).To(gomega.Succeed())
	return w
}

// limits keep a tenant from filling the machine that this runs on.
func limits(namespace string) client.Object {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limits"},
		Spec:       corev1.ResourceQuotaSpec{Hard: kit.Amounts("pods", "40", "count/jobs.batch", "40", "count/jobsets.jobset.x-k8s.io", "20")},
	}
}

// ofTwo is a runtime of two replicated jobs, whose quota can be reclaimed one by one.
func ofTwo(shipped *trainer.ClusterTrainingRuntime, namespace string) client.Object {
	own := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "two", Labels: shipped.Labels}, Spec: *shipped.Spec.DeepCopy()}
	jobs := &own.Spec.Template.Spec.ReplicatedJobs
	side := (*jobs)[0].DeepCopy()
	side.Name, side.Template.Labels = "b-node", nil
	side.Template.Spec.Template.Spec.Containers[0].Resources = kit.GPUResources("4")
	*jobs = append(*jobs, *side)
	return own
}

// watch follows what the tenant can write.
func (w *walk) watch(ctx context.Context) error {
	var kinds []record.Kind
	for _, r := range w.resources {
		if r.watched {
			kinds = append(kinds, record.Kind{GroupVersionResource: r.GroupVersionResource, Namespace: w.Namespace})
		}
	}
	_, err := record.Start(ctx, w.admin, kinds, func(v record.Version) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if v.Deleted {
			delete(w.live, v.Object.GetUID())
		} else {
			w.live[v.Object.GetUID()] = v.Object
		}
	})
	return err
}

// seen returns the objects of the namespace, in an order that does not depend on chance.
func (w *walk) seen() []*unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*unstructured.Unstructured, 0, len(w.live))
	for _, obj := range w.live {
		out = append(out, obj)
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// random takes n steps and returns them in symbols.
func (w *walk) random(ctx context.Context, r *rand.Rand, known *schemas, n int, hints weights) []action {
	var done []action
	by := drawn.with(hints)
	for len(done) < n && ctx.Err() == nil {
		live := w.seen()
		d := &drawer{Rand: r, schemas: known, live: live}
		a, ok := d.step(w, by)
		if !ok {
			continue
		}
		a.Name, a.Body = w.abstract(a.Name, live), w.abstract(a.Body, live)
		done = append(done, a)
		w.do(ctx, a)
	}
	return done
}

// step draws what happens next: a job is made, ends or is preempted, or the tenant does something.
func (d *drawer) step(w *walk, by weights) (action, bool) {
	jobs := 0
	for _, obj := range d.live {
		if obj.GetKind() == "TrainJob" {
			jobs++
		}
	}
	after := time.Duration(d.IntN(300)) * time.Millisecond
	what := d.IntN(20)
	switch {
	case jobs == 0 || jobs < 3 && d.one(10):
		return action{After: after, Verb: create, Resource: "trainjobs.v1alpha1.trainer.kubeflow.org", Body: encode(d.job(w.Namespace))}, true
	case what == 0:
		return action{After: after, Verb: finish, Name: pick(d.Rand, names), Body: pick(d.Rand, []string{"succeeded", "succeeded", "failed"})}, true
	case what == 1:
		return action{After: after, Verb: neighbour, Name: pick(d.Rand, []string{"", "high-{SUFFIX}"})}, true
	}
	return d.action(w.resources, by)
}

// job draws a TrainJob as users make them.
func (d *drawer) job(namespace string) map[string]any {
	job := kit.TrainJob(namespace, pick(d.Rand, names)).Queue("queue").GPUs(quota)
	if d.one(2) {
		job.PodAnnotation("example.com/user", "node", "localcluster/terminate-after", "6s")
	}
	if d.one(3) {
		job.Spec.RuntimeRef = trainer.RuntimeRef{APIGroup: &trainer.GroupVersion.Group, Kind: new("TrainingRuntime"), Name: "two"}
		job.GPUs("4")
	}
	if d.one(4) {
		job.Finalizers = []string{"example.com/mine"}
	}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job.Obj())
	if err != nil {
		panic(err) // A type that does not convert is ours.
	}
	delete(obj, "status")
	obj["apiVersion"], obj["kind"] = trainer.GroupVersion.String(), "TrainJob"
	return obj
}

// do carries an action out. That the API server refuses it is an answer like another.
func (w *walk) do(ctx context.Context, a action) {
	select {
	case <-time.After(a.After):
	case <-ctx.Done():
		return
	}
	live := w.seen()
	a.Name, a.Body = w.concrete(a.Name, live), w.concrete(a.Body, live)
	err := w.request(ctx, a)
	answer := "done"
	if err != nil {
		answer = string(apierrors.ReasonForError(err)) + " " + err.Error()
	}
	fmt.Fprintf(w.log, "%s %s %s %s %.300s: %.300s\n", time.Now().Format("15:04:05.000"), a.Verb, a.Resource, a.Name, a.Body, answer)
}

func (w *walk) request(ctx context.Context, a action) error {
	on := w.asTenant.Resource(a.gvr()).Namespace(w.Namespace)
	var subresources []string
	if a.Subresource != "" {
		subresources = []string{a.Subresource}
	}
	switch a.Verb {
	case finish:
		return w.end(ctx, w.Namespace, a.Name, a.Body)
	case neighbour:
		return w.toggle(ctx, a.Name)
	case create:
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(a.Body), &obj.Object); err != nil {
			return err
		}
		obj.SetNamespace(w.Namespace)
		_, err := on.Create(ctx, obj, metav1.CreateOptions{}, subresources...)
		return err
	case update:
		return w.update(ctx, on, a, subresources)
	case merge, jsonPatch, apply, applyForce:
		options := metav1.PatchOptions{}
		kind := map[verb]types.PatchType{merge: types.MergePatchType, jsonPatch: types.JSONPatchType, apply: types.ApplyPatchType, applyForce: types.ApplyPatchType}[a.Verb]
		if kind == types.ApplyPatchType {
			options.FieldManager, options.Force = "tenant", new(a.Verb == applyForce)
		}
		_, err := on.Patch(ctx, a.Name, kind, []byte(a.Body), options, subresources...)
		return err
	}
	propagation := metav1.DeletionPropagation(a.Propagation)
	options := metav1.DeleteOptions{PropagationPolicy: &propagation}
	if a.Verb == deleteCollection {
		return on.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	return on.Delete(ctx, a.Name, options, subresources...)
}

// update sends the whole object as it is to be after a merge patch.
func (w *walk) update(ctx context.Context, on dynamic.ResourceInterface, a action, subresources []string) error {
	obj, err := on.Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	merged, err := mergepatch.MergePatch([]byte(encode(obj.Object)), []byte(a.Body))
	if err != nil {
		return err
	}
	if err := obj.UnmarshalJSON(merged); err != nil {
		return err
	}
	_, err = on.Update(ctx, obj, metav1.UpdateOptions{}, subresources...)
	return err
}

// end ends the pods of a TrainJob.
func (w *walk) end(ctx context.Context, namespace, job, how string) error {
	var pods corev1.PodList
	if err := w.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job}); err != nil {
		return err
	}
	for i := range pods.Items {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"localcluster/finish":%q}}}`, how))
		if err := w.Patch(ctx, &pods.Items[i], patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// toggle starts the neighbour's TrainJob, or deletes the one that is there.
func (w *walk) toggle(ctx context.Context, priority string) error {
	job := kit.TrainJob(w.neighbours, "toggled").Queue("queue").GPUs(quota)
	if priority != "" {
		job.Priority(priority)
	}
	err := w.Create(ctx, job.Obj())
	if apierrors.IsAlreadyExists(err) {
		return w.Delete(ctx, job.Obj())
	}
	return err
}

// close takes everything away, and does not wait for it.
func (w *walk) close(ctx context.Context) {
	w.stop()
	w.ledger.Close()
	w.Unmake(ctx)
}
