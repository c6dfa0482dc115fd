// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// docs/features.md names these specs: what Kueue does where its configuration asks for it, done
// with TrainJobs. All are configured at once, because Kueue has to start again for them.
var _ = Describe("Where Kueue's configuration asks for it, a TrainJob", Label("control"), Serial, Ordered, ContinueOnFailure, func() {
	var w *world

	BeforeAll(func(ctx context.Context) {
		localOnly("the specs of this group change Kueue's configuration")
		restore := configureKueue(ctx, map[string]any{
			"fairSharing":             map[string]any{"preemptionStrategies": []any{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
			"admissionFairSharing":    map[string]any{"usageHalfLifeTime": "10m", "usageSamplingInterval": "1s"},
			"objectRetentionPolicies": map[string]any{"workloads": map[string]any{"afterFinished": "1s", "afterDeactivatedByKueue": "1s"}},
			"featureGates":            map[string]any{"CustomMetricLabels": true, "WorkloadPriorityClassDefaulting": true},
			"metrics": map[string]any{"customLabels": []any{
				map[string]any{"name": "team"},
				map[string]any{"name": "project", "sourceKind": "LocalQueue", "sourceAnnotationKey": "example.com/project"},
				map[string]any{"name": "model", "sourceKind": "Workload", "sourceAnnotationKey": "example.com/model", "trackedValues": []any{"vit"}},
			}},
		})
		restart := func(ctx context.Context) {
			for _, component := range slices.Compact([]string{"kueue", cluster.Manager()}) {
				Expect(cluster.Control(ctx, "restart", component, GinkgoWriter)).To(Succeed())
			}
		}
		DeferCleanup(func(ctx context.Context) {
			restore(ctx)
			restart(ctx)
		})
		restart(ctx)
	})

	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("is preempted by a queue that has less than its share", func(ctx context.Context) {
		shares := w.member("team", "shares", "0")
		shares.Spec.Preemption.ReclaimWithinCohort = kueue.PreemptionPolicyAny
		w.share(ctx, w.member("team", "idle", "16"), w.member("team", "victim", "0"), shares)
		w.make(ctx, w.job("preempted").Queue("victim").Nodes(2).GPUs("8").Obj())
		w.eventuallyRuns(ctx, "preempted", 2, onH100)
		w.make(ctx, w.job("claims").Queue("shares").GPUs("8").Obj())
		w.eventuallyPreempted(ctx, "preempted", kueue.InCohortFairSharingReason)
		w.eventuallyRuns(ctx, "claims", 1, onH100)
		w.eventuallyAtTheGate(ctx, "preempted")
		w.finish(ctx, "claims", "succeeded")
		w.eventuallyRuns(ctx, "preempted", 2, onH100)
	}, SpecTimeout(specTimeout))

	It("goes before earlier ones of a LocalQueue that has used more", func(ctx context.Context) {
		gpus := kit.MakeClusterQueue(w.name("gpus"), kit.Quota{Flavor: w.name("h100"), GPUs: "8"})
		gpus.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
		w.make(ctx, w.flavor("h100", onH100), gpus,
			kit.MakeLocalQueue(w.namespace, "heavy", gpus.Name), kit.MakeLocalQueue(w.namespace, "light", gpus.Name))
		w.runsOn(ctx, "uses", "heavy")
		Eventually(ctx, func() int64 { return w.consumed(ctx, "heavy") }).Should(BeNumerically(">", 0))
		w.queues(ctx, w.job("earlier").Queue("heavy").GPUs("8"))
		w.eventuallyLaterThan(ctx, "earlier")
		w.queues(ctx, w.job("later").Queue("light").GPUs("8"))

		w.finish(ctx, "uses", "succeeded")
		w.eventuallyRuns(ctx, "later", 1, onH100)
		w.consistentlyUnbound(ctx, "earlier")
	}, SpecTimeout(specTimeout))

	It("stays complete when its finished Workload is deleted", func(ctx context.Context) {
		w.pools(ctx, "8", "0")
		w.runsOn(ctx, "done", "queue")
		w.finish(ctx, "done", "succeeded")
		w.eventuallyTrainJob(ctx, "done", trainer.TrainJobComplete)
		Eventually(ctx, func() *kueue.Workload { return w.workload(ctx, "done") }).Should(BeNil())
		w.touch(ctx, "done")
		w.eventuallyCaughtUp(ctx)
		Consistently(ctx, func() *kueue.Workload { return w.workload(ctx, "done") }).Should(BeNil())
	}, SpecTimeout(specTimeout))

	It("is deleted when Kueue has deactivated it", func(ctx context.Context) {
		w.toleratesInactive()
		w.pools(ctx, "8", "0")
		late := w.job("late").GPUs("8").Obj()
		late.Labels[maxExecLabel] = "1"
		w.make(ctx, late)
		w.eventuallyGone(ctx, late)
	}, SpecTimeout(specTimeout))

	It("has the labels that its queues give to metrics", func(ctx context.Context) {
		w.pools(ctx, "8", "0")
		w.patch(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.name("gpus")}}, `{"metadata":{"labels":{"team":"vision"}}}`)
		w.patch(ctx, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: w.namespace}}, `{"metadata":{"annotations":{"example.com/project":"ocr"}}}`)
		job := w.job("measured").GPUs("8").Obj()
		job.Annotations = map[string]string{"example.com/model": "vit"}
		w.make(ctx, job)
		w.eventuallyRuns(ctx, "measured", 1, onH100)
		Expect(w.workload(ctx, "measured").Annotations).To(HaveKeyWithValue("example.com/model", "vit"))
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(And(
			MatchRegexp(`\nkueue_ready_wait_time_seconds_count{cluster_queue="%s",custom_team="vision",[^}]*} 1\n`, w.name("gpus")),
			MatchRegexp(`\nkueue_admitted_until_ready_wait_time_seconds_count{cluster_queue="%s",custom_team="vision",[^}]*} 1\n`, w.name("gpus")),
			MatchRegexp(`\nkueue_local_queue_ready_wait_time_seconds_count{custom_project="ocr",name="queue",namespace="%s",[^}]*} 1\n`, w.namespace),
		))
	}, SpecTimeout(specTimeout))

	It("gets the default WorkloadPriorityClass", func(ctx context.Context) {
		w.pools(ctx, "8", "0")
		w.make(ctx, kit.MakePriority("default", 7))
		w.make(ctx, w.job("plain").GPUs("8").Obj())
		w.eventuallyRuns(ctx, "plain", 1, onH100)
		Expect(w.workload(ctx, "plain").Spec.Priority).To(HaveValue(BeEquivalentTo(7)))
	}, SpecTimeout(specTimeout))
})

// consumed returns how many GPUs Kueue remembers that a LocalQueue has used.
func (w *world) consumed(ctx context.Context, queue string) int64 {
	GinkgoHelper()
	status := get(ctx, w, &kueue.LocalQueue{}, queue).Status.FairSharing
	if status == nil || status.AdmissionFairSharingStatus == nil {
		return 0
	}
	return status.AdmissionFairSharingStatus.ConsumedResources.Name(kit.GPU, "").MilliValue()
}
