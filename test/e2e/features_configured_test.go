// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// docs/features.md names these specs: what Kueue does where its configuration asks for it, done
// with TrainJobs. All are configured at once, because Kueue has to start again for them.
var _ = Describe("Where Kueue's configuration asks for it, a TrainJob", Label("control"), Serial, Ordered, ContinueOnFailure, func() {
	var w *site

	BeforeAll(func(ctx context.Context) {
		restartKueueWith(ctx, map[string]any{
			"fairSharing":             map[string]any{"preemptionStrategies": []any{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
			"admissionFairSharing":    map[string]any{"usageHalfLifeTime": "10m", "usageSamplingInterval": "1s"},
			"objectRetentionPolicies": map[string]any{"workloads": map[string]any{"afterFinished": "1s", "afterDeactivatedByKueue": "1s"}},
			"featureGates":            map[string]any{"CustomMetricLabels": true, "WorkloadPriorityClassDefaulting": true, "PriorityBoost": true},
			"resources": map[string]any{
				"transformations":     []any{map[string]any{"input": "cpu", "strategy": "Replace", "outputs": map[string]any{credits: "2"}}},
				"deviceClassMappings": []any{map[string]any{"name": devices, "deviceClassNames": []any{deviceClass}}},
			},
			"metrics": map[string]any{"customLabels": []any{
				map[string]any{"name": "team"},
				map[string]any{"name": "project", "sourceKind": "LocalQueue", "sourceAnnotationKey": "example.com/project"},
				map[string]any{"name": "model", "sourceKind": "Workload", "sourceAnnotationKey": "example.com/model", "trackedValues": []any{"vit"}},
			}},
		}, slices.Compact([]string{"kueue", cluster.Manager()})...)
	})

	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("is preempted by a queue that has less than its share", func(ctx context.Context) {
		shares := w.member("team", "shares", "0")
		shares.Spec.Preemption.ReclaimWithinCohort = kueue.PreemptionPolicyAny
		w.share(ctx, w.member("team", "idle", "16"), w.member("team", "victim", "0"), shares)
		w.MakeRunning(ctx, w.Job("preempted").Queue("victim").Nodes(2).GPUs("8"), 2, onH100)
		w.Make(ctx, w.Job("claims").Queue("shares").GPUs("8").Obj())
		w.givesWay(ctx, 2, 1, kueue.InCohortFairSharingReason)
	}, SpecTimeout(specTimeout))

	It("goes before earlier ones of a LocalQueue that has used more", func(ctx context.Context) {
		gpus := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"})
		gpus.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
		w.Make(ctx, w.Flavor("h100", onH100), gpus, kit.LocalQueue(w.Namespace, "heavy", gpus.Name), kit.LocalQueue(w.Namespace, "light", gpus.Name))
		w.runsOn(ctx, "uses", "heavy")
		used := func(amount resource.Quantity) bool { return amount.Sign() > 0 }
		w.EventuallyIs(ctx, &kueue.LocalQueue{}, "heavy",
			HaveField("Status.FairSharing.AdmissionFairSharingStatus.ConsumedResources", HaveKeyWithValue(kit.GPU, Satisfy(used))))
		w.queues(ctx, w.Job("earlier").Queue("heavy").GPUs("8"))
		w.eventuallyLaterThan(ctx, "earlier")
		w.queues(ctx, w.Job("later").Queue("light").GPUs("8"))

		w.Finish(ctx, "uses", "succeeded")
		w.EventuallyRuns(ctx, "later", 1, onH100)
		w.ConsistentlyUnbound(ctx, "earlier")
	}, SpecTimeout(specTimeout))

	It("stays complete when its finished Workload is deleted", func(ctx context.Context) {
		w.Pools(ctx, "8", "0")
		w.runsOn(ctx, "done", "queue")
		w.Finish(ctx, "done", "succeeded")
		w.eventuallyTrainJob(ctx, "done", trainer.TrainJobComplete)
		w.EventuallyNoWorkload(ctx, "done")
		w.Touch(ctx, "done")
		w.EventuallyCaughtUp(ctx)
		Consistently(ctx, func() *kueue.Workload { return w.Workload(ctx, "done") }).Should(BeNil())
	}, SpecTimeout(specTimeout))

	It("is deleted when Kueue has deactivated it", func(ctx context.Context) {
		w.Pools(ctx, "8", "0")
		late := w.Job("late").GPUs("8").Obj()
		late.Labels[maxExecLabel] = "1"
		w.Make(ctx, late)
		w.EventuallyGone(ctx, late)
	}, SpecTimeout(specTimeout))

	It("has the labels that its queues give to metrics", func(ctx context.Context) {
		w.Pools(ctx, "8", "0")
		w.PatchJSON(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.Name("gpus")}}, `{"metadata":{"labels":{"team":"vision"}}}`)
		w.PatchJSON(ctx, &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: w.Namespace}}, `{"metadata":{"annotations":{"example.com/project":"ocr"}}}`)
		job := w.Job("measured").GPUs("8")
		job.Annotations = map[string]string{"example.com/model": "vit"}
		w.MakeRunning(ctx, job, 1, onH100)
		Expect(w.Workload(ctx, "measured").Annotations).To(HaveKeyWithValue("example.com/model", "vit"))
		Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(And(
			MatchRegexp(`\nkueue_ready_wait_time_seconds_count{cluster_queue="%s",custom_team="vision",[^}]*} 1\n`, w.Name("gpus")),
			MatchRegexp(`\nkueue_admitted_until_ready_wait_time_seconds_count{cluster_queue="%s",custom_team="vision",[^}]*} 1\n`, w.Name("gpus")),
			MatchRegexp(`\nkueue_local_queue_ready_wait_time_seconds_count{custom_project="ocr",name="queue",namespace="%s",[^}]*} 1\n`, w.Namespace),
		))
	}, SpecTimeout(specTimeout))

	It("gets the default WorkloadPriorityClass", func(ctx context.Context) {
		w.Pools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("plain").GPUs("8"), 1, onH100, kit.Priority("default", 7))
		Expect(w.Workload(ctx, "plain").Spec.Priority).To(HaveValue(BeEquivalentTo(7)))
	}, SpecTimeout(specTimeout))

	It("preempts when its Workload gets a higher priority boost, and keeps it", func(ctx context.Context) {
		w.Pools(ctx, "8", "0")
		w.runsOn(ctx, "runs", "queue")
		w.queues(ctx, w.Job("first").GPUs("8"))
		w.queues(ctx, w.Job("boosted").GPUs("8"))
		w.PatchJSON(ctx, w.Workload(ctx, "boosted"), `{"metadata":{"annotations":{"kueue.x-k8s.io/priority-boost":"10"}}}`)
		w.eventuallyTrue(ctx, "runs", kueue.WorkloadPreempted, kueue.InClusterQueueReason)
		w.EventuallyRuns(ctx, "boosted", 1, onH100)
		w.ConsistentlyUnbound(ctx, "first")
		w.Touch(ctx, "boosted")
		w.EventuallyCaughtUp(ctx)
		Expect(w.Workload(ctx, "boosted").Annotations).To(HaveKeyWithValue("kueue.x-k8s.io/priority-boost", "10"))
	}, SpecTimeout(specTimeout))

	It("is charged what its resources are transformed to", func(ctx context.Context) {
		w.Make(ctx, kit.Queue(w.LocalQueue(), w.Flavor("h100", onH100, gpuToleration), kit.Quota{Of: credits, Amount: "12"})...)
		w.MakeRunning(ctx, w.Job("first").Request(corev1.ResourceCPU, "4"), 1, onH100)
		Expect(w.charged(ctx, "first")).To(HaveKeyWithValue(corev1.ResourceName(credits), resource.MustParse("8")))
		w.queues(ctx, w.Job("second").Request(corev1.ResourceCPU, "4"))
		w.eventuallyKueueSays(ctx, "second", credits)
		w.ConsistentlyUnbound(ctx, "second")
		w.Finish(ctx, "first", "succeeded")
		w.EventuallyRuns(ctx, "second", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("is charged for the devices that its pods claim, and runs on nodes that have them", func(ctx context.Context) {
		w.Make(ctx, kit.Queue(w.LocalQueue(), w.Flavor("h100", onH100, gpuToleration), kit.Quota{Of: devices, Amount: "2"})...)
		node := w.deviceNode(ctx, 2)
		runtime := w.claimingRuntime(ctx)
		claiming := func(name string) *kit.TrainJobBuilder { return w.Job(name).Runtime(runtime).Nodes(2) }
		for _, pod := range w.MakeRunning(ctx, claiming("first"), 2, onH100) {
			Expect(pod.Spec.NodeName).To(Equal(node))
		}
		Expect(w.charged(ctx, "first")).To(HaveKeyWithValue(corev1.ResourceName(devices), resource.MustParse("2")))
		claims := world.All(ctx, Default, w, &resourceapi.ResourceClaimList{}, client.InNamespace(w.Namespace))
		Expect(claims.Items).To(And(HaveLen(2), HaveEach(HaveField("Status.Allocation", Not(BeNil())))))
		w.queues(ctx, claiming("second"))
		w.eventuallyKueueSays(ctx, "second", devices)
		w.ConsistentlyUnbound(ctx, "second")
		w.Finish(ctx, "first", "succeeded")
		w.EventuallyRuns(ctx, "second", 2, onH100)
	}, SpecTimeout(specTimeout))
})

// Resources that Kueue counts by its configuration, and a class of devices.
const (
	credits     = "example.com/credits"
	devices     = "example.com/devices"
	deviceClass = "devices.example.com"
)

// charged returns what the Workload of a TrainJob of one PodSet holds.
func (w *site) charged(ctx context.Context, job string) corev1.ResourceList {
	return w.Workload(ctx, job).Status.Admission.PodSetAssignments[0].ResourceUsage
}

// deviceNode adds devices of the class to an H100 node, as a driver would, and returns its name.
func (w *site) deviceNode(ctx context.Context, count int) string {
	nodes := world.All(ctx, Default, w, &corev1.NodeList{}, client.MatchingLabels(onH100))
	Expect(nodes.Items).NotTo(BeEmpty())
	node := nodes.Items[len(nodes.Items)-1].Name
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name("devices")},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: w.Name("driver") + ".example.com", NodeName: &node,
			Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	class := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: deviceClass},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", slice.Spec.Driver)},
		}}},
	}
	w.Make(ctx, class, slice)
	return node
}

// claimingRuntime makes a runtime each of whose pods claims one device, and returns its name.
func (w *site) claimingRuntime(ctx context.Context) string {
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	pod := kit.RuntimePod(&runtime.Spec)
	pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: new("device")}}
	pod.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "device"}}
	w.Make(ctx, runtime, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "device"},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "one", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: deviceClass, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			}}},
		}}},
	})
	return runtime.Name
}

// optedIn is the label of namespaces that Kueue manages in these specs.
const optedIn = "example.com/opted-in"

var _ = Describe("Where namespaces opt in", Label("control", "external"), core, Serial, since(world.Trainer22), Ordered, ContinueOnFailure, func() {
	var w *site

	BeforeAll(func(ctx context.Context) {
		restartKueueWith(ctx, map[string]any{"managedJobsNamespaceSelector": map[string]any{"matchLabels": map[string]any{optedIn: "true"}}}, "kueue")
	})

	// label lets the namespace in, or takes it out.
	label := func(ctx context.Context, value string) {
		w.PatchJSON(ctx, kit.Namespace(w.Namespace), `{"metadata":{"labels":{"`+optedIn+`":`+value+`}}}`)
	}
	in := func(ctx context.Context) { label(ctx, `"true"`) }
	out := func(ctx context.Context) { label(ctx, `null`) }
	entry := func(ctx context.Context, job string) string {
		return fmt.Sprint(w.raw(ctx, job, "runtimePatches"))
	}
	workloads := func(ctx context.Context) ([]string, error) { return w.Names(ctx, &kueue.WorkloadList{}) }

	BeforeEach(func(ctx context.Context) {
		w = newPools(ctx, "8", "0")
		w.runsOutside("Kueue does not manage every namespace here")
	})

	It("others are left alone: a TrainJob runs at once, without Workload and gate, and is told so", func(ctx context.Context) {
		Expect(complaint(ctx, 0, "submit", "outside", "-n", w.Namespace, "--runtime", "torch-distributed", "--gpus-per-node", "16", "--queue", "queue")).
			To(ContainSubstring("Kueue does not manage namespace " + w.Namespace))
		Eventually(ctx, func() []corev1.Pod { return w.Pods(ctx, "outside") }).Should(ConsistOf(HaveField("Spec.SchedulingGates", BeEmpty())))
		Expect(w.eventuallyExplained(ctx, "outside", explain.NotManaged, "NamespaceNotManaged").State.Remedy).
			To(ContainSubstring("kubectl label namespace %s %s=true", w.Namespace, optedIn))
		w.EventuallyNotes(ctx, "outside", "NamespaceNotManaged").ShouldNot(BeEmpty())
		Expect(w.gates(ctx, "outside")).To(BeEmpty())
		Expect(workloads(ctx)).To(BeEmpty())
		By("its user may take the queue away")
		w.PatchJSON(ctx, w.Job("outside").Obj(), `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`)
	}, SpecTimeout(specTimeout))

	It("what began outside runs on when its namespace comes in", func(ctx context.Context) {
		w.Make(ctx, w.Job("outside").GPUs("8").Obj())
		w.EventuallyPods(ctx, "outside", 1)
		pods := w.Pods(ctx, "outside")
		in(ctx)
		w.MakeRunning(ctx, w.Job("next").GPUs("8"), 1, onH100)
		Expect(world.UIDs(w.Pods(ctx, "outside"))).To(Equal(world.UIDs(pods)))
		w.eventuallyExplained(ctx, "outside", explain.NotManaged, "BeganUnmanaged")
	}, SpecTimeout(specTimeout))

	It("a waiting TrainJob queues when its namespace comes in, and loses Workload and gate when it goes", func(ctx context.Context) {
		w.MakeYAML(ctx, queuedYAML("waits")+"\n  suspend: true")
		w.EventuallyNotes(ctx, "waits", "NamespaceNotManaged").ShouldNot(BeEmpty())
		w.SetQuota(ctx, w.Name("gpus"), "0")
		in(ctx)
		Eventually(ctx, func() ([]string, error) { return workloads(ctx) }).Should(HaveLen(1))
		Eventually(ctx, entry).WithArguments(ctx, "waits").Should(ContainSubstring(patch.AdmissionGate))
		out(ctx)
		Eventually(ctx, func() ([]string, error) { return workloads(ctx) }).Should(BeEmpty())
		Eventually(ctx, entry).WithArguments(ctx, "waits").ShouldNot(ContainSubstring(patch.AdmissionGate))
		Expect(w.TrainJob(ctx, "waits").Spec.Suspend).To(HaveValue(BeTrue()))
		By("its user resumes it, and its pods have no gate")
		w.PatchJSON(ctx, w.Job("waits").Obj(), `{"spec":{"suspend":false}}`)
		Eventually(ctx, func() []corev1.Pod { return w.Pods(ctx, "waits") }).Should(ConsistOf(HaveField("Spec.SchedulingGates", BeEmpty())))
	}, SpecTimeout(specTimeout))

	It("what runs keeps its quota to its end when its namespace goes, and stops when its Workload is deactivated", func(ctx context.Context) {
		in(ctx)
		w.MakeYAML(ctx, queuedYAML("runs"))
		pods := w.EventuallyRuns(ctx, "runs", 1, onH100)
		out(ctx)
		w.Make(ctx, w.Job("outside").GPUs("8").Obj())
		w.EventuallyPods(ctx, "outside", 1)
		Expect(world.UIDs(w.Pods(ctx, "runs"))).To(Equal(world.UIDs(pods)))
		Expect(w.usedGPUs(ctx)).To(BeEquivalentTo(8))
		w.Activate(ctx, "runs", false)
		Eventually(ctx, func(g Gomega) {
			g.Expect(w.TrainJob(ctx, "runs").Spec.Suspend).To(HaveValue(BeTrue()))
			g.Expect(w.Pods(ctx, "runs")).To(BeEmpty())
			g.Expect(workloads(ctx)).To(BeEmpty())
			g.Expect(w.usedGPUs(ctx)).To(BeZero())
		}).Should(Succeed())
		Expect(w.gates(ctx, "runs")).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})
