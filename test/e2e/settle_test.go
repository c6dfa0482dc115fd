// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// settle waits until every job is where its Workload says, and compares the pods of
// those that run with what they have to look like. The expectation is made from the
// API objects alone, without code of the manager.
func (k *walk) settle(ctx context.Context) {
	checked := 0
	Eventually(ctx, func(g Gomega) {
		checked = 0
		jobs := world.All(ctx, g, k, &trainer.TrainJobList{}, client.InNamespace(k.Namespace))
		for i := range jobs.Items {
			checked += k.settled(ctx, g, &jobs.Items[i])
		}
	}).WithTimeout(90 * time.Second).Should(Succeed())
	k.checked += checked
}

// settled returns the number of pods it compared.
func (k *walk) settled(ctx context.Context, g Gomega, job *trainer.TrainJob) int {
	wl := k.Workload(ctx, job.Name)
	g.Expect(wl).NotTo(BeNil(), job.Name)
	pods := k.Pods(ctx, job.Name)
	switch {
	case finished(job):
		g.Expect(apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)).To(BeTrue(), "%s is finished, its Workload is not", job.Name)
		return 0
	case !workload.IsAdmitted(wl) || !ptr.Deref(wl.Spec.Active, true):
		g.Expect(pods).To(BeEmpty(), "pods of %s without quota", job.Name)
		g.Expect(wl.Status.Admission).To(BeNil(), "quota of %s without pods", job.Name)
		g.Expect(cluster.Integration != world.External || world.GatedEntry(job)).To(BeTrue(), "%s is not at the gate: %v", job.Name, job.Spec.RuntimePatches)
		g.Expect(job.Spec.Suspend).To(HaveValue(BeTrue()), job.Name)
		return 0
	}
	assignment := &wl.Status.Admission.PodSetAssignments[0]
	g.Expect(pods).To(HaveLen(int(*assignment.Count)), "pods of %s", job.Name)
	for i := range pods {
		g.Expect(pods[i].DeletionTimestamp).To(BeNil(), pods[i].Name)
		g.Expect(pods[i].Status.Phase).To(Equal(corev1.PodRunning), pods[i].Name)
		k.exact(ctx, g, job, wl, &pods[i])
	}
	return len(pods)
}

// exact compares one pod with base + admission.
func (k *walk) exact(ctx context.Context, g Gomega, job *trainer.TrainJob, wl *kueue.Workload, pod *corev1.Pod) {
	assignment := &wl.Status.Admission.PodSetAssignments[0]
	flavor := world.Found(ctx, g, k, &kueue.ResourceFlavor{}, client.ObjectKey{Name: string(assignment.Flavors["nvidia.com/gpu"])})

	selector := maps.Clone(flavor.Spec.NodeLabels)
	if assignment.TopologyAssignment != nil {
		selector[corev1.LabelHostname] = pod.Spec.NodeName
	}
	g.Expect(pod.Spec.NodeSelector).To(Equal(selector), "node selector of %s", pod.Name)

	want := append(k.baseTolerations(ctx, g, job), flavor.Spec.Tolerations...)
	if !slices.Contains(want, gpuToleration) {
		want = append(want, gpuToleration)
	}
	g.Expect(world.Tolerations(pod)).To(ConsistOf(want), "tolerations of %s", pod.Name)

	g.Expect(pod.Spec.SchedulingGates).To(BeEmpty(), "gates of %s", pod.Name)
	labels := maps.Clone(pod.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return !strings.Contains(key, "kueue") })
	g.Expect(labels).To(Equal(map[string]string{
		"kueue.x-k8s.io/podset":             "node",
		"kueue.x-k8s.io/local-queue-name":   string(wl.Spec.QueueName),
		"kueue.x-k8s.io/cluster-queue-name": string(wl.Status.Admission.ClusterQueue),
	}), "Kueue's labels of %s", pod.Name)
	g.Expect(pod.Annotations).To(HaveKeyWithValue("kueue.x-k8s.io/workload", wl.Name))
}

// baseTolerations are those of the walker's entry, whose list replaces the runtime's,
// or else those of the runtime as Trainer froze it for this job.
func (k *walk) baseTolerations(ctx context.Context, g Gomega, job *trainer.TrainJob) []corev1.Toleration {
	for _, entry := range job.Spec.RuntimePatches {
		if entry.Manager == walker {
			return entry.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Tolerations
		}
	}
	var runtime trainer.ClusterTrainingRuntime
	if k.frozen {
		snapshot := world.Found(ctx, g, k, &corev1.ConfigMap{}, client.ObjectKey{Namespace: k.Namespace, Name: job.Name + "-runtime-snapshot"})
		g.Expect(yaml.Unmarshal([]byte(snapshot.Data["runtime"]), &runtime)).To(Succeed())
	} else {
		g.Expect(k.Get(ctx, client.ObjectKey{Name: k.runtime}, &runtime)).To(Succeed())
	}
	return kit.RuntimePod(&runtime.Spec).Tolerations
}
