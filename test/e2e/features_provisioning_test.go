// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	reservationLabel   = "example.com/reservation"
	consumesAnnotation = "autoscaling.x-k8s.io/consume-provisioning-request"
	provisioningClass  = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
)

var provisioningRequest = schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1", Kind: "ProvisioningRequest"}

// These specs are the autoscaler.
var _ = Describe("A TrainJob whose nodes an autoscaler makes", func() {
	var w *site

	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	// cloud makes LocalQueue "queue" for nodes of two reservations, three of each, that come with a ProvisioningRequest.
	cloud := func(ctx context.Context) {
		for n := range 6 {
			w.Make(ctx, kit.Node(w.Name(fmt.Sprintf("node-%d", n)), map[string]string{fabricLabel: w.Suffix, reservationLabel: fmt.Sprintf("r-%d", n/3)}))
		}
		w.Pool(ctx, w.Flavor("cloud", map[string]string{fabricLabel: w.Suffix}), "48")
		w.provisioned(ctx)
	}

	It("has it asked for the pods of all PodSets as they are going to be, waits, and has the updates of the request in them, after an eviction those of the next alone", func(ctx context.Context) {
		cloud(ctx)
		w.Make(ctx, w.Job("mpi").Runtime("deepspeed-distributed").Nodes(3).GPUs("8").Obj())
		first := w.eventuallyRequested(ctx, "mpi", "")
		Expect(first.Spec.PodSets).To(HaveLen(2))
		pods := int32(0)
		for _, ps := range first.Spec.PodSets {
			pods += ps.Count
			template := get(ctx, w, &corev1.PodTemplate{}, ps.PodTemplateRef.Name).Template.Spec
			Expect(template.Tolerations).To(ContainElement(gpuToleration))
			Expect(template.NodeSelector).To(Equal(map[string]string{fabricLabel: w.Suffix}))
			Expect(template.Containers[0].Resources.Requests).To(HaveKeyWithValue(kit.GPU, resource.MustParse("8")))
		}
		Expect(pods).To(BeEquivalentTo(3))
		w.EventuallyAtTheGate(ctx, "mpi")
		Expect(w.Pods(ctx, "mpi")).To(BeEmpty())

		w.answer(ctx, first, "r-0", "Provisioned")
		w.eventuallyUpdated(ctx, "mpi", 3, first.Name, "r-0")

		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.HoldAndDrain)
		w.EventuallyAtTheGate(ctx, "mpi")
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.None)
		second := w.eventuallyRequested(ctx, "mpi", first.UID)
		w.answer(ctx, second, "r-1", "Provisioned")
		w.eventuallyUpdated(ctx, "mpi", 3, second.Name, "r-1")
	}, SpecTimeout(specTimeout))

	It("asks again where the autoscaler failed, runs by the next request, and is stopped where the capacity is revoked, and told so", func(ctx context.Context) {
		cloud(ctx)
		w.Make(ctx, w.Job("llm").Nodes(2).GPUs("8").Obj())
		first := w.eventuallyRequested(ctx, "llm", "")
		w.answer(ctx, first, "r-0", "Failed")
		w.EventuallyTold(ctx, "llm", "AdmissionCheckRetries", "gave its quota back to try again")
		second := w.eventuallyRequested(ctx, "llm", first.UID)
		Expect(second.Name).NotTo(Equal(first.Name))
		w.answer(ctx, second, "r-1", "Provisioned")
		w.eventuallyUpdated(ctx, "llm", 2, second.Name, "r-1")
		w.answer(ctx, second, "r-1", "CapacityRevoked")
		w.EventuallyTold(ctx, "llm", "AdmissionCheckRejected", "CapacityRevoked")
		w.EventuallyAtTheGate(ctx, "llm")
		Eventually(ctx, func() *bool { return w.Workload(ctx, "llm").Spec.Active }).Should(HaveValue(BeFalse()))
	}, SpecTimeout(specTimeout))

	It("is placed by the topology of nodes that were not there when it got its quota", func(ctx context.Context) {
		w.fabricQueue(ctx)
		w.provisioned(ctx)
		w.Make(ctx, asking(w.Job("llm").Nodes(4).GPUs("8"), "node", required(blockLabel)).Obj())
		request := w.eventuallyRequested(ctx, "llm", "")
		w.fabricNodes(ctx)
		w.answer(ctx, request, "", "Provisioned")
		nodes := w.eventuallyPlaced(ctx, "llm", 4)
		Expect(distinct(valuesOf(nodes, blockLabel))).To(HaveLen(1))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("What an admission check says of the pods", func() {
	It("is in them, and after an eviction what it says then: node selector and tolerations are that alone", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		check := w.ControlledCheck(ctx)
		w.Make(ctx, w.Job("llm").GPUs("8").Obj())

		h100 := tolerate("example.com/h100")
		w.SetCheck(ctx, "llm", check, kueue.CheckStateReady, "", kueue.PodSetUpdate{
			Name: "node", Labels: map[string]string{"example.com/zone": "a"}, Annotations: map[string]string{"example.com/order": "1"},
			NodeSelector: map[string]string{kit.FamilyLabel: "hopper"}, Tolerations: []corev1.Toleration{h100}})
		pod := w.EventuallyRuns(ctx, "llm", 1, onH100)[0]
		Expect(pod.Labels).To(HaveKeyWithValue("example.com/zone", "a"))
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/order", "1"))
		Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}))
		Expect(world.Tolerations(&pod)).To(ConsistOf(gpuToleration, h100))

		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.HoldAndDrain)
		w.EventuallyAtTheGate(ctx, "llm")
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.None)
		w.SetCheck(ctx, "llm", check, kueue.CheckStateReady, "", kueue.PodSetUpdate{
			Name: "node", Labels: map[string]string{"example.com/zone": "b"}, Annotations: map[string]string{"example.com/order": "2"},
			NodeSelector: map[string]string{"nvidia.com/gpu.count": "8"}})
		pod = w.EventuallyRuns(ctx, "llm", 1, onH100)[0]
		Expect(pod.Labels).To(HaveKeyWithValue("example.com/zone", "b"))
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/order", "2"))
		Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100, "nvidia.com/gpu.count": "8"}))
		Expect(world.Tolerations(&pod)).To(ConsistOf(gpuToleration))
	}, SpecTimeout(specTimeout))
})

// provisioned has the spec's ClusterQueue admit what an autoscaler has nodes for, in the reservation that it names.
func (w *site) provisioned(ctx context.Context) {
	config := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: w.Name("nodes")}}
	config.Spec = kueue.ProvisioningRequestConfigSpec{
		ProvisioningClassName: provisioningClass,
		ManagedResources:      []corev1.ResourceName{kit.GPU},
		RetryStrategy:         &kueue.ProvisioningRequestRetryStrategy{BackoffLimitCount: new(int32(1)), BackoffBaseSeconds: new(int32(1)), BackoffMaxSeconds: new(int32(1))},
		PodSetUpdates: &kueue.ProvisioningRequestPodSetUpdates{NodeSelector: []kueue.ProvisioningRequestPodSetUpdatesNodeSelector{
			{Key: reservationLabel, ValueFromProvisioningClassDetail: "Reservation"}}},
	}
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.Name("nodes")}}
	check.Spec.ControllerName = kueue.ProvisioningRequestControllerName
	check.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group, Kind: "ProvisioningRequestConfig", Name: config.Name}
	w.Make(ctx, config, check)
	w.DemandCheck(ctx, check.Name)
}

// nodeRequest is what the specs read of a ProvisioningRequest.
type nodeRequest struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodSets []struct {
			PodTemplateRef corev1.LocalObjectReference `json:"podTemplateRef"`
			Count          int32                       `json:"count"`
		} `json:"podSets"`
	} `json:"spec"`
}

// eventuallyRequested waits until Kueue has asked for the nodes of a TrainJob, by another request than a former one.
func (w *site) eventuallyRequested(ctx context.Context, job string, former types.UID) nodeRequest {
	var found nodeRequest
	Eventually(ctx, func(g Gomega) {
		wl := w.Workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(provisioningRequest)
		g.Expect(w.List(ctx, &list, client.InNamespace(w.Namespace))).To(Succeed())
		found = nodeRequest{}
		for _, item := range list.Items {
			if item.GetUID() != former && strings.HasPrefix(item.GetName(), wl.Name) {
				found = *read[nodeRequest](&item)
			}
		}
		g.Expect(found.UID).NotTo(BeEmpty())
	}).Should(Succeed())
	return found
}

// answer accepts a request, with a reservation if there is one, and says one thing more of it, as the autoscaler.
func (w *site) answer(ctx context.Context, r nodeRequest, reservation, condition string) {
	conditions := expect.Each([]string{"Accepted", condition}, func(name string) any {
		return map[string]any{"type": name, "status": "True", "reason": name, "message": name, "lastTransitionTime": metav1.Now().ToUnstructured()}
	})
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(provisioningRequest)
	obj.SetNamespace(r.Namespace)
	obj.SetName(r.Name)
	status := map[string]any{"conditions": conditions}
	if reservation != "" {
		status["provisioningClassDetails"] = map[string]any{"Reservation": reservation}
	}
	w.ChangeStatus(ctx, obj, func() { obj.Object["status"] = status })
}

// eventuallyUpdated waits until a TrainJob runs with n pods that have the updates of one request.
func (w *site) eventuallyUpdated(ctx context.Context, job string, n int, request, reservation string) {
	for _, pod := range w.EventuallyRuns(ctx, job, n, map[string]string{reservationLabel: reservation}) {
		Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{fabricLabel: w.Suffix, reservationLabel: reservation}))
		Expect(pod.Annotations).To(HaveKeyWithValue(consumesAnnotation, request))
		Expect(pod.Annotations).To(HaveKeyWithValue("autoscaling.x-k8s.io/provisioning-class-name", provisioningClass))
	}
}
