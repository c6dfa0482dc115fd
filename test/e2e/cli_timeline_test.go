// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/xml"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("kubectl trainjob timeline", func() {
	It("tells who did what of a preempted job, in order, and where the time went", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("llm").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8"), 1, onH100)
		w.Finish(ctx, "urgent", "succeeded")
		w.EventuallyRuns(ctx, "llm", 1, onH100)
		w.Succeed(ctx, "llm")

		var t timeline.Timeline
		Eventually(ctx, func(g Gomega) {
			t = printed[timeline.Timeline](ctx, g, "timeline", "llm", "-n", w.Namespace)
			g.Expect(t.Ended).To(BeTrue())
			steps := []string{"created it", "made it", "QuotaReserved", "Admitted", "Started", "Evicted", "Admitted", "Started", "reported it as Complete"}
			for _, s := range t.Steps {
				if match, _ := HavePrefix(steps[0]).Match(s.Step); match {
					if steps = steps[1:]; len(steps) == 0 {
						break
					}
				}
			}
			g.Expect(steps).To(BeEmpty(), "%+v", t.Steps)
		}).Should(Succeed())
		for _, actor := range []timeline.Actor{timeline.User, timeline.Webhook, timeline.Trainer, timeline.JobSet, timeline.Manager, timeline.Kueue, timeline.JobController, timeline.Scheduler, timeline.Kubelet} {
			Expect(t.Steps).To(ContainElement(HaveField("Actor", actor)))
		}
		share := 0.0
		for _, span := range t.Spans {
			share += span.Share
		}
		Expect(share).To(BeNumerically("~", 1, 0.001))
		Expect(t.Spans).To(ContainElements(HaveField("Phase", timeline.Stopping), HaveField("Phase", timeline.Running)))
		Expect(xml.Unmarshal([]byte(w.says(ctx, "timeline", "llm", "-o", "svg")), &struct{}{})).To(Succeed())
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/timeline.md")
	}, SpecTimeout(specTimeout))
})
