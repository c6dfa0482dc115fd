// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"
)

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 3 * time.Minute

// copyRuntime returns one of Trainer's own runtimes under a name of this spec.
func (w *world) copyRuntime(ctx context.Context, name string) *trainer.ClusterTrainingRuntime {
	GinkgoHelper()
	var shipped trainer.ClusterTrainingRuntime
	Expect(w.Get(ctx, client.ObjectKey{Name: name}, &shipped)).To(Succeed())
	return &trainer.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: w.name(name), Labels: shipped.Labels},
		Spec:       *shipped.Spec.DeepCopy(),
	}
}

// makeNeeds makes what a runtime's pods need in their namespace.
func (w *world) makeNeeds(ctx context.Context, runtime string) {
	GinkgoHelper()
	needs, err := cluster.Needs(ctx, w.namespace, runtime)
	Expect(err).NotTo(HaveOccurred())
	w.make(ctx, needs...)
}

// activate sets spec.active of a TrainJob's Workload; the ledger then tolerates what Kueue
// makes of that.
func (w *world) activate(ctx context.Context, job string, active bool) {
	GinkgoHelper()
	w.toleratesInactive()
	wl := w.workload(ctx, job)
	Expect(wl).NotTo(BeNil())
	before := wl.DeepCopy()
	wl.Spec.Active = ptr.To(active)
	Expect(w.Patch(ctx, wl, client.MergeFrom(before))).To(Succeed())
}

// makeYAML creates an object from a manifest as it is, in the spec's namespace.
func (w *world) makeYAML(ctx context.Context, manifest string) {
	GinkgoHelper()
	obj := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &obj.Object)).To(Succeed())
	obj.SetNamespace(w.namespace)
	w.make(ctx, obj)
}

// raw returns a list of a TrainJob as the API server stores it, without Go types.
func (w *world) raw(ctx context.Context, job string, fields ...string) []any {
	GinkgoHelper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(trainer.GroupVersion.WithKind("TrainJob"))
	list, _, err := unstructured.NestedSlice(get(ctx, w, obj, job).Object, fields...)
	Expect(err).NotTo(HaveOccurred())
	return list
}

func jsonOf(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// wantedPods adds up the pods that the child Jobs of a TrainJob want at a time.
func (w *world) wantedPods(ctx context.Context, job string) int {
	GinkgoHelper()
	var jobs batchv1.JobList
	Expect(w.List(ctx, &jobs, client.InNamespace(w.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
	wanted := 0
	for _, j := range jobs.Items {
		wanted += int(*j.Spec.Parallelism)
	}
	return wanted
}

func quantity(amount string) *resource.Quantity {
	q := resource.MustParse(amount)
	return &q
}

// updateRuntime changes a ClusterTrainingRuntime, again when somebody else was faster.
func (w *world) updateRuntime(ctx context.Context, name string, change func(*trainer.ClusterTrainingRuntime)) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var runtime trainer.ClusterTrainingRuntime
		if err := w.Get(ctx, client.ObjectKey{Name: name}, &runtime); err != nil {
			return err
		}
		change(&runtime)
		return w.Update(ctx, &runtime)
	})).To(Succeed())
}

// setQuota sets the GPUs of a ClusterQueue's first flavor.
func (w *world) setQuota(ctx context.Context, clusterQueue, gpus string) {
	GinkgoHelper()
	var cq kueue.ClusterQueue
	Expect(w.Get(ctx, client.ObjectKey{Name: clusterQueue}, &cq)).To(Succeed())
	before := cq.DeepCopy()
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = *quantity(gpus)
	Expect(w.Patch(ctx, &cq, client.MergeFrom(before))).To(Succeed())
}

// touch makes an event on a TrainJob that changes nothing.
func (w *world) touch(ctx context.Context, name string) {
	GinkgoHelper()
	w.update(ctx, name, func(t *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.com/touched", rand.String(5))
	})
}

// touchPods makes an event on the child Jobs of a TrainJob that changes nothing.
func (w *world) touchPods(ctx context.Context, job string) {
	GinkgoHelper()
	var jobs batchv1.JobList
	Expect(w.List(ctx, &jobs, client.InNamespace(w.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
	for _, j := range jobs.Items {
		before := j.DeepCopy()
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, "example.com/touched", rand.String(5))
		Expect(w.Patch(ctx, &j, client.MergeFrom(before))).To(Succeed())
	}
}

// consistentlyKeeps watches that the pods and the Workload of a TrainJob stay the same,
// from when the manager has come to what happened after the spec's last change.
func (w *world) consistentlyKeeps(ctx context.Context, job string, pods []corev1.Pod, wl *kueue.Workload) {
	GinkgoHelper()
	w.eventuallyCaughtUp(ctx)
	Consistently(ctx, func(g Gomega) {
		g.Expect(w.workload(ctx, job)).To(HaveField("UID", wl.UID), "the Workload of %s", job)
		g.Expect(uids(w.pods(ctx, job))).To(ConsistOf(uids(pods)))
	}).Should(Succeed())
}

// eventuallyCaughtUp waits until a TrainJob that is made now, and waits for ever, has its
// Workload: events before it are dealt with, or about to be.
func (w *world) eventuallyCaughtUp(ctx context.Context) {
	GinkgoHelper()
	name := "sentinel-" + rand.String(5)
	w.make(ctx, w.job(name).Queue("nowhere").Obj())
	Eventually(ctx, func() *kueue.Workload { return w.workload(ctx, name) }).ShouldNot(BeNil())
}

func uids(pods []corev1.Pod) []types.UID {
	var out []types.UID
	for _, p := range pods {
		out = append(out, p.UID)
	}
	return out
}
