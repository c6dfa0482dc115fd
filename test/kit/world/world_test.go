// SPDX-License-Identifier: Apache-2.0

package world

import (
	"io"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWorldIsEmptyWhenItIsUnmade(t *testing.T) {
	cluster := &Cluster{Client: kit.Fake(kit.Scheme(trainer.AddToScheme)).Build(), Integration: External}
	w := New(t.Context(), gomega.NewWithT(t), io.Discard, cluster, "test", "1")
	w.Pools(t.Context(), "8", "0")
	w.Make(t.Context(), w.Job("llm").Obj())
	w.DeleteJobs(t.Context())
	w.EventuallyEmpty(t.Context())
	w.Unmake(t.Context())
	names, err := w.Names(t.Context(), &kueue.LocalQueueList{})
	expect.That(t, err == nil && len(names) == 0, "there are %v, %v", names, err)
}
