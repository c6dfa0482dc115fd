// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
)

// site is what one spec works in: a world whose pods are compared with what their jobs are charged for.
type site struct {
	*world.World

	ledger *ledger.Ledger
	// inactive and outside are what it puts up with; see ledger_test.go.
	inactive bool
	outside  string
}

// newWorld makes a namespace, and takes everything away after the spec; a spec that
// failed prints it first.
func newWorld(ctx context.Context) *site {
	GinkgoHelper()
	w := &site{World: world.New(ctx, Default, GinkgoWriter, cluster, "e2e", world.NewSuffix())}
	w.openLedger(ctx)
	DeferCleanup(w.leave)
	return w
}

// newPools makes a world with World.Pools.
func newPools(ctx context.Context, h100GPUs, a100GPUs string, tolerations ...corev1.Toleration) *site {
	GinkgoHelper()
	w := newWorld(ctx)
	w.Pools(ctx, h100GPUs, a100GPUs, tolerations...)
	return w
}

// newRunning makes a world with 8 H100s, all of which a TrainJob has.
func newRunning(ctx context.Context, job string) (*site, []corev1.Pod) {
	GinkgoHelper()
	w := newPools(ctx, "8", "0")
	return w, w.MakeRunning(ctx, w.Job(job).GPUs("8"), 1, onH100)
}

func (w *site) leave(ctx context.Context) {
	defer w.ledger.Close()
	problem := InterceptGomegaFailure(func() { w.audit(ctx) })
	if CurrentSpecReport().Failed() || problem != nil {
		w.Dump(ctx)
	}
	w.DeleteJobs(ctx)
	w.EventuallyNo(ctx, &trainer.TrainJobList{}, &kueue.WorkloadList{}, &corev1.PodList{})
	w.Unmake(ctx)
	Expect(problem).NotTo(HaveOccurred())
}

// get reads an object of the spec's namespace again.
func get[T client.Object](ctx context.Context, w *site, obj T, name string) T {
	GinkgoHelper()
	w.Read(ctx, obj, name)
	return obj
}
