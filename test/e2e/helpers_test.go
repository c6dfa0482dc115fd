// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 3 * time.Minute

// externalOnly skips specs of what comes with kueue-trainer, and says why.
func externalOnly(why string) {
	GinkgoHelper()
	if cluster.Integration != world.External {
		Skip(why)
	}
}

// Activate sets spec.active of a TrainJob's Workload; the ledger then tolerates what Kueue
// makes of that.
func (w *site) Activate(ctx context.Context, job string, active bool) {
	GinkgoHelper()
	w.toleratesInactive()
	w.World.Activate(ctx, job, active)
}

// raw returns a list of a TrainJob as the API server stores it, without Go types.
func (w *site) raw(ctx context.Context, job string, fields ...string) []any {
	GinkgoHelper()
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
	GinkgoHelper()
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
