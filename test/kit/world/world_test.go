// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"io"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// newWorld is one of a cluster that is not there.
func newWorld(t *testing.T) *World {
	scheme := kit.Scheme(trainer.AddToScheme)
	cluster := &Cluster{Client: kit.Fake(scheme).Build(), Integration: External}
	return New(t.Context(), gomega.NewWithT(t), io.Discard, cluster, "test", "1")
}

func TestWorldIsEmptyWhenItIsUnmade(t *testing.T) {
	w := newWorld(t)
	w.Pools(t.Context(), "8", "0")
	w.Make(t.Context(), w.Job("llm").Obj())
	w.DeleteJobs(t.Context())
	w.EventuallyEmpty(t.Context())
	w.Unmake(t.Context())
	names, err := w.Names(context.Background(), &kueue.LocalQueueList{})
	expect.That(t, err == nil && len(names) == 0, "there are %v, %v", names, err)
}

func TestEventuallyWorkloadWaitsForWhatIsNotThereYet(t *testing.T) {
	w := newWorld(t)
	// A Gomega that is given a context waits for as long as that.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	job := w.Job("llm").Obj()
	w.Make(t.Context(), job)
	go func() {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "wl", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(job, trainer.GroupVersion.WithKind("TrainJob"))}}}
		_ = w.Create(context.Background(), wl)
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus"}
		_ = w.Client.Update(context.Background(), wl)
	}()
	w.EventuallyWorkload(ctx, "llm", gomega.HaveField("Status.Admission.ClusterQueue", gomega.BeEquivalentTo("gpus")))
}
