// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// eventuallyRuns waits until a TrainJob has exactly n pods, all bound and running, on
// nodes that carry the given labels.
func (w *world) eventuallyRuns(ctx context.Context, job string, n int, nodeLabels map[string]string) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(ctx, func(g Gomega) {
		pods = w.pods(ctx, job)
		g.Expect(pods).To(HaveLen(n))
		for _, pod := range pods {
			g.Expect(pod.DeletionTimestamp).To(BeNil(), pod.Name)
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), pod.Name)
		}
	}).Should(Succeed())
	for _, pod := range pods {
		node := w.node(ctx, pod.Spec.NodeName)
		for key, value := range nodeLabels {
			Expect(node.Labels).To(HaveKeyWithValue(key, value), "pod %s on node %s", pod.Name, node.Name)
		}
	}
	return pods
}

// eventuallyCondition waits for a condition of a TrainJob's Workload and gives the Workload.
func (w *world) eventuallyCondition(ctx context.Context, job, condition string) *kueue.Workload {
	GinkgoHelper()
	var wl *kueue.Workload
	Eventually(ctx, func(g Gomega) {
		wl = w.workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition)).To(BeTrue(), "condition %s", condition)
	}).Should(Succeed())
	return wl
}

// eventuallyPending waits until a TrainJob's Workload is there and was looked at by
// Kueue, which keeps it waiting.
func (w *world) eventuallyPending(ctx context.Context, job string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		wl := w.workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		condition := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(string(condition.Status)).To(Equal("False"))
	}).Should(Succeed())
}

// consistentlyUnbound watches that no pod of a TrainJob gets a node.
func (w *world) consistentlyUnbound(ctx context.Context, job string) {
	GinkgoHelper()
	Consistently(ctx, func(g Gomega) {
		for _, pod := range w.pods(ctx, job) {
			g.Expect(pod.Spec.NodeName).To(BeEmpty(), pod.Name)
		}
	}).Should(Succeed())
}

// eventuallyAtTheGate waits until a TrainJob is suspended and our entry holds only
// the gate, after all other entries. The in-tree integration has no gate.
func (w *world) eventuallyAtTheGate(ctx context.Context, job string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var t trainer.TrainJob
		g.Expect(w.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: job}, &t)).To(Succeed())
		g.Expect(t.Spec.Suspend).To(HaveValue(BeTrue()))
		g.Expect(cluster.Integration != kit.External || gatedEntry(&t)).To(BeTrue(), "entries: %v", t.Spec.RuntimePatches)
	}).Should(Succeed())
}

// gatedEntry reports whether the last entry is ours and says nothing but the gate,
// for every replicated job it names.
func gatedEntry(t *trainer.TrainJob) bool {
	entries := t.Spec.RuntimePatches
	if len(entries) == 0 || entries[len(entries)-1].Manager != patch.Manager {
		return false
	}
	jobs := entries[len(entries)-1].TrainingRuntimeSpec.Template.Spec.ReplicatedJobs
	for _, rj := range jobs {
		pod := rj.Template.Spec.Template
		if pod.Spec == nil || len(pod.Spec.SchedulingGates) != 1 || pod.Spec.SchedulingGates[0].Name != patch.AdmissionGate ||
			len(pod.Spec.NodeSelector)+len(pod.Spec.Tolerations) > 0 || len(pod.Metadata.Labels) != 1 || pod.Metadata.Labels[patch.GatedLabel] != "true" {
			return false
		}
	}
	return len(jobs) > 0
}

// ofReplicatedJob picks the pods of one replicated job.
func ofReplicatedJob(pods []corev1.Pod, name string) []corev1.Pod {
	var out []corev1.Pod
	for _, pod := range pods {
		if pod.Labels[jobsetapi.ReplicatedJobNameKey] == name {
			out = append(out, pod)
		}
	}
	return out
}

// tolerations returns what a pod tolerates, without what Kubernetes adds to every pod.
func tolerations(pod *corev1.Pod) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range pod.Spec.Tolerations {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			out = append(out, t)
		}
	}
	return out
}

// eventNotes returns the notes of the events with a reason on an object of the spec.
func (w *world) eventNotes(ctx context.Context, kind, name, reason string) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(w.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// eventuallyChildJobs waits until JobSet has made n child Jobs of a TrainJob.
func (w *world) eventuallyChildJobs(ctx context.Context, job string, n int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var jobs batchv1.JobList
		g.Expect(w.List(ctx, &jobs, client.InNamespace(w.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
		g.Expect(jobs.Items).To(HaveLen(n))
	}).Should(Succeed())
}
