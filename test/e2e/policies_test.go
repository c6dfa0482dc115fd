// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// Every request of these specs is a dry run, so that one scene serves them all.
var _ = Describe("The policies at the API server", Label("invariant", "policies", "external"), Serial, Ordered, ContinueOnFailure, core, func() {
	var s *scene

	BeforeAll(func(ctx context.Context) {
		s = newScene(ctx)
		bind := unbindPolicies(ctx)
		for name, a := range attempts {
			if trainerOf(ctx) >= world.Trainer23 || !ofTrainer23.Has(name) {
				Eventually(ctx, func() error { return a.ask(ctx, s, s.tenant) }).Should(Succeed(), "without a policy a tenant can %s", name)
			}
		}
		bind(ctx)
	}, NodeTimeout(specTimeout))

	for _, name := range slices.Sorted(maps.Keys(attempts)) {
		a := attempts[name]
		It("do not let a tenant "+name, generations(name), func(ctx context.Context) {
			Eventually(ctx, func() error { return a.ask(ctx, s, s.tenant) }).Should(SatisfyAll(
				WithTransform(apierrors.IsForbidden, BeTrue()),
				MatchError(ContainSubstring("ValidatingAdmissionPolicy '"+a.policy+"'")),
				MatchError(ContainSubstring(a.words))))
		}, SpecTimeout(specTimeout))
	}

	for _, name := range slices.Sorted(maps.Keys(tenantsFlows)) {
		It("let a tenant "+name, func(ctx context.Context) {
			Expect(tenantsFlows[name](ctx, s, s.tenant)).To(Succeed())
		}, SpecTimeout(specTimeout))
	}

	for _, name := range slices.Sorted(maps.Keys(systemFlows)) {
		It("let "+name, generations(name), func(ctx context.Context) {
			Expect(systemFlows[name](ctx, s, s.tenant)).To(Succeed())
		}, SpecTimeout(specTimeout))
	}

	It("have expressions that fit the types of what they look at", func(ctx context.Context) {
		list := world.All(ctx, Default, cluster.Client, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, policiesOfOurs)
		Expect(list.Items).NotTo(BeEmpty())
		for _, policy := range list.Items {
			Expect(policy.Status.TypeChecking).NotTo(BeNil(), policy.Name)
			Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty(), policy.Name)
		}
	}, SpecTimeout(specTimeout))
})

var _ = Describe("With the policies at the API server", Label("policies", "external"), core, func() {
	It("Trainer takes over no JobSet that was planted, and its TrainJob runs when that is gone", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("job").Queue("nowhere").GPUs("8").Obj()
		Expect(w.Create(ctx, job)).To(Succeed())
		w.EventuallyChildJobs(ctx, "job", 1)
		// Just what Trainer would make, and one more.
		planted := (&scene{site: w}).jobSet("job")
		planted.Spec = get(ctx, w, &jobsetapi.JobSet{}, "job").Spec
		more := planted.Spec.ReplicatedJobs[0].DeepCopy()
		more.Name = "more"
		planted.Spec.ReplicatedJobs = append(planted.Spec.ReplicatedJobs, *more)
		for i := range planted.Spec.ReplicatedJobs {
			planted.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.SchedulingGates = nil
		}
		Expect(w.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(ctx, func() error { return w.Create(ctx, planted.DeepCopy()) }).Should(Succeed())
		w.EventuallyGone(ctx, job)

		w.Make(ctx, w.Job("job").GPUs("8").Obj())
		w.EventuallyNotes(ctx, "job", "CannotStart").ShouldNot(BeEmpty())
		Consistently(ctx, func() any { return get(ctx, w, &jobsetapi.JobSet{}, "job").OwnerReferences }).Should(BeEmpty())
		Expect(w.Delete(ctx, planted)).To(Succeed())
		// Trainer hears nothing of a JobSet that is not its own, and its back-off is long by now.
		w.Touch(ctx, "job")
		w.EventuallyRuns(ctx, "job", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("JobSet restarts a TrainJob that fails", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		first := w.MakeRunning(ctx, w.Job("job").Runtime(w.Name("torch-distributed")).GPUs("8"), 1, onH100, w.restarting(ctx))
		w.Finish(ctx, "job", "failed")
		Eventually(ctx, func() int32 { return get(ctx, w, &jobsetapi.JobSet{}, "job").Status.Restarts }).Should(BeEquivalentTo(1))
		Eventually(ctx, func() []types.UID { return world.UIDs(w.Pods(ctx, "job")) }).ShouldNot(ContainElement(first[0].UID))
		w.EventuallyRuns(ctx, "job", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("a namespace goes with the TrainJobs that run and wait in it", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		doomed := world.New(ctx, Default, GinkgoWriter, cluster, "e2e-doomed", w.Suffix)
		namespace := kit.Namespace(doomed.Namespace)
		runtime := namespaced(w.CopyRuntime(ctx, "torch-distributed"), doomed.Namespace, "own")
		doomed.Make(ctx, kit.LocalQueue(doomed.Namespace, "queue", w.Name("gpus")), runtime, byOwn(doomed.Job("runs").GPUs("8"), "own"))
		doomed.EventuallyRuns(ctx, "runs", 1, onH100)
		doomed.Make(ctx, doomed.Job("waits").GPUs("8").Obj())
		doomed.EventuallyChildJobs(ctx, "waits", 1)
		Expect(w.Delete(ctx, namespace)).To(Succeed())
		// The namespace controller counts what is left every quarter of a minute.
		Eventually(ctx, func(g Gomega) {
			err := w.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
			g.Expect(err).To(MatchError(apierrors.IsNotFound, "NotFound"), "It has left: %v", namespace.Status.Conditions)
		}).WithTimeout(2 * time.Minute).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

var policiesOfOurs = client.MatchingLabels{"app.kubernetes.io/part-of": "kueue-trainer"}

// unbindPolicies switches the policies off until bind.
func unbindPolicies(ctx context.Context) (bind func(context.Context)) {
	bindings := world.All(ctx, Default, cluster.Client, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, policiesOfOurs)
	Expect(bindings.Items).NotTo(BeEmpty())
	bind = func(ctx context.Context) {
		for _, b := range bindings.Items {
			b.ResourceVersion = ""
			Expect(client.IgnoreAlreadyExists(cluster.Client.Create(ctx, &b))).To(Succeed())
		}
	}
	DeferCleanup(bind)
	for _, b := range bindings.Items {
		Expect(cluster.Client.Delete(ctx, b.DeepCopy())).To(Succeed())
	}
	return bind
}
