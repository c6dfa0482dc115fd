// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("Bad input", func() {
	DescribeTable("is refused when a TrainJob is created",
		func(ctx context.Context, change func(*kit.TrainJobBuilder), want ...string) {
			job := kit.TrainJob(metav1.NamespaceDefault, "bad").Queue("queue").Nodes(2)
			change(job)
			err := cluster.Client.Create(ctx, job.Obj(), client.DryRunAll)
			for _, part := range want {
				Expect(err).To(MatchError(ContainSubstring(strings.ReplaceAll(part, "spec.runtimePatches", "spec."+fieldOf[trainerOf(ctx)]))))
			}
		},
		Entry("for a runtime that does not exist", func(j *kit.TrainJobBuilder) { j.Runtime("no-such-runtime") },
			"spec.runtimeRef", `ClusterTrainingRuntime "no-such-runtime"`, "create it"),
		// Before 2.3, Trainer's own webhook refuses it, too, and its answer is the one given.
		Entry("for a patch of a replicated job that does not exist", since(world.Trainer23), func(j *kit.TrainJobBuilder) {
			j.PodAnnotations("example.com/user", "a", "b", "nodes")
		}, `spec.runtimePatches[example.com/user]`, `"nodes"`, "it has: node"),
		Entry("for two topology annotations that exclude each other", func(j *kit.TrainJobBuilder) {
			asking(j, "node", map[string]string{kueue.PodSetRequiredTopologyAnnotation: "block", kueue.PodSetPreferredTopologyAnnotation: "rack"})
		}, "replicatedJobs[node]", "spec.runtimePatches"),
		Entry("for a topology annotation that cannot be read", func(j *kit.TrainJobBuilder) {
			j.PodAnnotations("example.com/user", "kueue.x-k8s.io/podset-unconstrained-topology", "perhaps", "node")
		}, "replicatedJobs[node]", "spec.runtimePatches"),
		Entry("for a topology slice larger than the job", func(j *kit.TrainJobBuilder) {
			asking(j, "node", map[string]string{kueue.PodSetRequiredTopologyAnnotation: "block",
				kueue.PodSetSliceRequiredTopologyAnnotation: "rack", kueue.PodSetSliceSizeAnnotation: "16"})
		}, "replicatedJobs[node]", "podset-slice-size"),
		Entry("for a queue whose name is none", func(j *kit.TrainJobBuilder) { j.Queue("My_Queue") }, "metadata.labels[kueue.x-k8s.io/queue-name]"),
		Entry("for an elastic job", func(j *kit.TrainJobBuilder) {
			j.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
		}, "metadata.annotations[kueue.x-k8s.io/elastic-job]", "not supported"),
	)

	It("is refused where a user changes the manager's entry, naming the way out", Label("invariant", "ours-only"), func(ctx context.Context) {
		w := newPools(ctx, "0", "0")
		w.MakeGated(ctx, w.Job("mine").GPUs("1"), 0)
		Expect(w.TryEdit(ctx, "mine", func(t *trainer.TrainJob) {
			t.Spec.RuntimePatches[0].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulingGates = nil
		})).To(MatchError(SatisfyAll(
			ContainSubstring("spec."+fieldOf[trainerOf(ctx)]), ContainSubstring("put your changes into"))))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("The manager's entry", func() {
	It("is reset when an exported TrainJob is created again", core, Label("invariant", "ours-only"), func(ctx context.Context) {
		w := newPools(ctx, "8", "8")
		w.MakeRunning(ctx, w.Job("copied").GPUs("8"), 1, onH100)
		exported := w.TrainJob(ctx, "copied")
		again := &trainer.TrainJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "again", Labels: exported.Labels},
			Spec:       exported.Spec,
		}
		w.Make(ctx, again)
		Expect(again.Spec.Suspend).To(HaveValue(BeTrue()))
		Expect(world.GatedEntry(again)).To(BeTrue())
		w.EventuallyRuns(ctx, "again", 1, onA100)
	}, SpecTimeout(specTimeout))

	It("comes back when a client applies a list that does not have it, and stays last", core, Label("invariant", "exact"), func(ctx context.Context) {
		w := newPools(ctx, "0", "0")
		w.MakeGated(ctx, w.Job("applied").GPUs("1"), 0)
		ofManager := func(name string) []trainer.RuntimePatch {
			return kit.TrainJob("", "").PodAnnotations(name, "a", "b", "node").Spec.RuntimePatches
		}
		w.Edit(ctx, "applied", func(t *trainer.TrainJob) { t.Spec.RuntimePatches = ofManager("example.com/user") })
		w.EventuallyAtTheGate(ctx, "applied")
		w.Edit(ctx, "applied", func(t *trainer.TrainJob) {
			t.Spec.RuntimePatches = append(t.Spec.RuntimePatches, ofManager("example.com/late")...)
		})
		w.EventuallyAtTheGate(ctx, "applied")
		Expect(w.TrainJob(ctx, "applied").Spec.RuntimePatches).To(HaveLen(3))
	}, SpecTimeout(specTimeout))

	It("comes with a queue, which a TrainJob cannot leave again", core, func(ctx context.Context) {
		w := newPools(ctx, "0", "0")
		job := kit.TrainJob(w.Namespace, "wanders").GPUs("1").Obj()
		job.Spec.Suspend = new(true)
		w.Make(ctx, job)
		Expect(w.TrainJob(ctx, "wanders").Spec.RuntimePatches).To(BeEmpty())
		w.Edit(ctx, "wanders", func(t *trainer.TrainJob) { metav1.SetMetaDataLabel(&t.ObjectMeta, kit.QueueLabel, "queue") })
		w.EventuallyAtTheGate(ctx, "wanders")
		Expect(w.TryEdit(ctx, "wanders", func(t *trainer.TrainJob) { delete(t.Labels, kit.QueueLabel) })).To(MatchError(SatisfyAll(
			ContainSubstring("metadata.labels[kueue.x-k8s.io/queue-name]"), ContainSubstring("create the TrainJob again"))))
	}, SpecTimeout(specTimeout))
})

var _ = It("A TrainJob that its user fills up takes no more before it is too large to be suspended, and is preempted", long, func(ctx context.Context) {
	w := newPools(ctx, "8", "0")
	w.MakeRunning(ctx, w.Job("full").GPUs("8").Priority(w.Name("low")), 1, onH100, kit.Priority(w.Name("low"), 1))

	// As many annotations as the API server takes. Each manager that applies them repeats their names.
	annotations := map[string]any{}
	for i := range 800 {
		domain := strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 61)+".", 4), ".")
		annotations[fmt.Sprintf("%s/%s-%d", domain, strings.Repeat("y", 50), i)] = ""
	}
	applied := must(json.Marshal(map[string]any{
		"apiVersion": trainjob.GVK.GroupVersion().String(), "kind": trainjob.GVK.Kind,
		"metadata": map[string]any{"namespace": w.Namespace, "name": "full", "annotations": annotations},
	}))
	var refused error
	for i := 0; refused == nil && i < 8; i++ {
		refused = w.Patch(ctx, w.Job("full").Obj(), client.RawPatch(types.ApplyPatchType, applied), client.FieldOwner(fmt.Sprintf("tenant-%d", i)))
	}
	Expect(refused).To(MatchError(ContainSubstring("a TrainJob in a queue may have")))

	w.MakeRunning(ctx, w.Job("urgent").GPUs("8").Priority(w.Name("high")), 1, onH100, kit.Priority(w.Name("high"), 100))
}, SpecTimeout(specTimeout))
