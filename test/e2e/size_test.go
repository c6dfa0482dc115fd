// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("A TrainJob that its user fills up", long, func() {
	It("takes no more before it is too large to be suspended, and is preempted", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100))
		w.MakeRunning(ctx, w.Job("full").GPUs("8").Priority(w.Name("low")), 1, onH100)

		// As many annotations as the API server takes. Each manager that applies them repeats their names.
		annotations := map[string]any{}
		for i := range 800 {
			domain := strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 61)+".", 4), ".")
			annotations[fmt.Sprintf("%s/%s-%d", domain, strings.Repeat("y", 50), i)] = ""
		}
		applied, err := json.Marshal(map[string]any{
			"apiVersion": trainjob.GVK.GroupVersion().String(), "kind": trainjob.GVK.Kind,
			"metadata": map[string]any{"namespace": w.Namespace, "name": "full", "annotations": annotations},
		})
		Expect(err).NotTo(HaveOccurred())
		var refused error
		for i := 0; refused == nil && i < 8; i++ {
			refused = w.Patch(ctx, w.Job("full").Obj(), client.RawPatch(types.ApplyPatchType, applied), client.FieldOwner(fmt.Sprintf("tenant-%d", i)))
		}
		Expect(refused).To(MatchError(ContainSubstring("a TrainJob in a queue may have")))

		w.Make(ctx, w.Job("urgent").GPUs("8").Priority(w.Name("high")).Obj())
		w.EventuallyRuns(ctx, "urgent", 1, onH100)
	}, SpecTimeout(specTimeout))
})
