// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var upgradeTo = flag.String("upgrade.to", "", "generation of Trainer that one spec upgrades the cluster to, for good; without it that spec is skipped")

// fieldOf names the field of TrainJobs that holds patches, by generation.
var fieldOf = map[string]string{world.Trainer21: "podTemplateOverrides", world.Trainer22: "runtimePatches", world.Trainer23: "runtimePatches"}

var _ = Describe("The generation of Trainer", Label("control"), Serial, func() {
	It("is exported, and the manager says so and does nothing while it is unknown", core, Label("invariant", "not-ours-to-stop"), func(ctx context.Context) {
		w, pods := newRunning(ctx, "runs")
		wl := w.Workload(ctx, "runs")
		w.MakeGated(ctx, w.Job("waits").GPUs("8"), 0)
		served := trainerOf(ctx)
		w.eventuallyExports(ctx, served)

		w.hideField(ctx, fieldOf[served])
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).
			Should(And(ContainSubstring("\nkueue_trainer_build_info{"), Not(ContainSubstring("\nkueue_trainer_trainer_info{"))))
		Eventually(ctx, func() string { return fetch(ctx, "health", "/readyz?verbose") }).Should(ContainSubstring("[-]trainer-generation-known failed"))
		for _, job := range []string{"runs", "waits"} {
			w.EventuallyNotes(ctx, job, "TrainerUnknown").Should(ConsistOf(ContainSubstring("install Trainer 2.1 or later")), job)
		}
		Expect(w.Create(ctx, w.Job("new").GPUs("8").Obj())).To(MatchError(ContainSubstring("install Trainer 2.1 or later")))
		w.Touch(ctx, "runs")
		Consistently(ctx, func() any { return world.UIDs(w.Pods(ctx, "runs")) }).Should(ConsistOf(world.UIDs(pods)))

		w.showField(ctx)
		w.eventuallyExports(ctx, served)
		w.Touch(ctx, "runs")
		w.ConsistentlyKeeps(ctx, "runs", pods, wl)
		w.EventuallyAtTheGate(ctx, "waits")
		w.Finish(ctx, "runs", "succeeded")
		w.EventuallyRuns(ctx, "waits", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("is followed through an upgrade: who runs runs on, who waits or is evicted runs later", Label("upgrade"), func(ctx context.Context) {
		if *upgradeTo == "" {
			Skip("give -upgrade.to, on a cluster with an older Trainer")
		}
		w := newPools(ctx, "18", "0")
		w.MakeNeeds(ctx, "torchtune-qwen2.5-1.5b")
		w.Make(ctx,
			w.Job("evicted").GPUs("8").Obj(), w.Job("ends").GPUs("8").Obj(),
			w.Job("stages").Runtime("torchtune-qwen2.5-1.5b").GPUs("2").Initializers().Obj())
		running := map[string][]corev1.Pod{
			"evicted": w.EventuallyRuns(ctx, "evicted", 1, onH100),
			"ends":    w.EventuallyRuns(ctx, "ends", 1, onH100),
			"stages":  w.EventuallyRuns(ctx, "stages", 2, nil),
		}
		w.MakeGated(ctx, w.Job("waits").GPUs("8"), 1)
		labelled := w.CopyRuntime(ctx, "torchtune-qwen2.5-1.5b")
		for i := range labelled.Spec.Template.Spec.ReplicatedJobs {
			// Trainer cannot take the last label of pods from a JobSet, so these are left one.
			metav1.SetMetaDataLabel(&labelled.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.ObjectMeta, "example.com/a", "b")
		}
		w.Make(ctx, labelled)
		w.MakeGated(ctx, w.Job("between").Runtime(labelled.Name).GPUs("2").Initializers(), 2)
		started := startOf(ctx)

		By("admitting jobs while the older controllers work on with the new CRDs")
		Expect(cluster.UpgradeCRDs(ctx, *upgradeTo, GinkgoWriter)).To(Succeed())
		w.eventuallyExports(ctx, *upgradeTo)
		w.SetQuota(ctx, w.Name("gpus"), "22")
		w.Make(ctx, w.Job("fresh").Runtime("torchtune-qwen2.5-1.5b").GPUs("2").Initializers().Obj())
		between := []string{"between", "fresh"}
		for _, job := range between {
			w.EventuallyCondition(ctx, job, kueue.WorkloadAdmitted)
			w.EventuallyNotes(ctx, job, "TrainerBehind").Should(ConsistOf(ContainSubstring("spec."+fieldOf[*upgradeTo])), job)
			Consistently(ctx, func() any { return w.Pods(ctx, job) }).Should(BeEmpty(), job)
		}

		By("replacing the controllers")
		Expect(cluster.Upgrade(ctx, *upgradeTo, GinkgoWriter)).To(Succeed())
		for _, job := range between {
			w.EventuallyRuns(ctx, job, 2, nil)
			w.Finish(ctx, job, "succeeded")
			w.eventuallyStage(ctx, job)
			w.Succeed(ctx, job)
		}
		w.EventuallyAtTheGate(ctx, "waits")
		for job, pods := range running {
			w.Touch(ctx, job)
			w.TouchPods(ctx, job)
			w.ConsistentlyKeeps(ctx, job, pods, w.Workload(ctx, job))
		}
		Expect(startOf(ctx)).To(Equal(started), "the manager was not restarted")

		By("starting the last stage of a job that was admitted before")
		w.Finish(ctx, "stages", "succeeded")
		w.eventuallyStage(ctx, "stages")

		By("starting a job that waited meanwhile")
		w.Finish(ctx, "ends", "succeeded")
		exactlyPlaced(w.EventuallyRuns(ctx, "waits", 1, onH100))

		By("preempting them, and starting them again")
		// The new Trainer brings new runtimes: an older Workload is brought up to date when its job has stopped.
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).Nodes(2).GPUs("8"), 2, onH100, kit.Priority(w.Name("urgent"), 1000))
		for _, job := range []string{"evicted", "waits"} {
			w.EventuallyAtTheGate(ctx, job)
			w.EventuallyPods(ctx, job, 0)
		}
		w.Finish(ctx, "urgent", "succeeded")
		for _, job := range []string{"evicted", "waits"} {
			exactlyPlaced(w.EventuallyRuns(ctx, job, 1, onH100))
		}
	}, SpecTimeout(5*time.Minute))
})

// exactlyPlaced compares pods with what an admission to the first of the pools adds.
func exactlyPlaced(pods []corev1.Pod) {
	for _, pod := range pods {
		Expect(pod.Spec.NodeSelector).To(Equal(onH100))
		Expect(world.Tolerations(&pod)).To(ConsistOf(gpuToleration))
		Expect(pod.Spec.SchedulingGates).To(BeEmpty())
	}
}

// eventuallyStage waits until the last stage of a job runs as an admission to the first of the pools has it.
func (w *site) eventuallyStage(ctx context.Context, job string) {
	tolerations := func(pod corev1.Pod) []corev1.Toleration { return world.Tolerations(&pod) }
	Eventually(ctx, func() []corev1.Pod { return world.OfReplicatedJob(w.Pods(ctx, job), "node") }).Should(ConsistOf(And(
		world.Running(), HaveField("Spec.NodeSelector", onH100), WithTransform(tolerations, ConsistOf(gpuToleration)))))
}

func (w *site) eventuallyExports(ctx context.Context, release string) {
	Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).
		Should(ContainSubstring("\nkueue_trainer_trainer_info{version=\"" + release + "\"} 1\n"))
}

var processStart = regexp.MustCompile(`(?m)^process_start_time_seconds (.*)$`)

func startOf(ctx context.Context) string {
	found := processStart.FindStringSubmatch(fetch(ctx, "metrics", "/metrics"))
	Expect(found).To(HaveLen(2))
	return found[1]
}

const hidden = "hiddenByTheSpec"

// hideField takes a field from the CRD of TrainJob, as in one of another generation. It is back after the spec.
func (w *site) hideField(ctx context.Context, name string) {
	DeferCleanup(w.showField)
	Expect(cluster.ChangeCRD(ctx, func(crd *apiextensionsv1.CustomResourceDefinition, spec apiextensionsv1.JSONSchemaProps) {
		crd.Annotations[hidden] = name
		spec.Properties[hidden] = spec.Properties[name]
		delete(spec.Properties, name)
	})).To(Succeed())
}

// showField undoes hideField.
func (w *site) showField(ctx context.Context) {
	Expect(cluster.ChangeCRD(ctx, func(crd *apiextensionsv1.CustomResourceDefinition, spec apiextensionsv1.JSONSchemaProps) {
		if name := crd.Annotations[hidden]; name != "" {
			spec.Properties[name] = spec.Properties[hidden]
			delete(spec.Properties, hidden)
			delete(crd.Annotations, hidden)
		}
	})).To(Succeed())
}
