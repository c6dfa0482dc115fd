// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
)

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 3 * time.Minute

// externalOnly skips specs of what comes with kueue-trainer, and says why.
func externalOnly(why string) {
	if cluster.Integration != world.External {
		Skip(why)
	}
}

// must returns a value, and fails the spec where there is an error.
func must[T any](value T, err error) T {
	Expect(err).NotTo(HaveOccurred())
	return value
}

// raw returns a list of a TrainJob as the API server stores it, without Go types.
func (w *site) raw(ctx context.Context, job string, fields ...string) []any {
	list, _, err := unstructured.NestedSlice(get(ctx, w, newTrainJob(), job).Object, fields...)
	Expect(err).NotTo(HaveOccurred())
	return list
}

func jsonOf(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// wantedPods adds up the pods that the child Jobs of a TrainJob want at a time.
func (w *site) wantedPods(ctx context.Context, job string) int {
	wanted := 0
	for _, j := range w.ChildJobs(ctx, job) {
		wanted += int(*j.Spec.Parallelism)
	}
	return wanted
}

func quantity(amount string) *resource.Quantity {
	q := resource.MustParse(amount)
	return &q
}

// site is what one spec works in: a world whose pods are compared with what their jobs are charged for.
type site struct {
	*world.World

	ledger *ledger.Ledger
	// outside is what it puts up with; see ledger_test.go.
	outside string
}

// newWorld makes a namespace, and takes everything away after the spec; a spec that
// failed prints it first.
func newWorld(ctx context.Context) *site {
	w := &site{World: world.New(ctx, Default, GinkgoWriter, cluster, "e2e", world.NewSuffix())}
	w.openLedger(ctx)
	DeferCleanup(w.leave)
	return w
}

// newPools makes a world with World.Pools.
func newPools(ctx context.Context, h100GPUs, a100GPUs string, tolerations ...corev1.Toleration) *site {
	w := newWorld(ctx)
	w.Pools(ctx, h100GPUs, a100GPUs, tolerations...)
	return w
}

// newRunning makes a world with 8 H100s, all of which a TrainJob has.
func newRunning(ctx context.Context, job string) (*site, []corev1.Pod) {
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
	w.Read(ctx, obj, name)
	return obj
}
