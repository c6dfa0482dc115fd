// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// EventuallyRuns waits until a TrainJob has exactly n pods, all running, on nodes that carry the given labels.
func (w *World) EventuallyRuns(ctx context.Context, job string, n int, nodeLabels map[string]string) []corev1.Pod {
	var pods []corev1.Pod
	w.g.Eventually(ctx, func() []corev1.Pod {
		pods = w.Pods(ctx, job)
		return pods
	}).Should(gomega.And(gomega.HaveLen(n), gomega.HaveEach(Running())))
	for _, pod := range pods {
		node := w.Node(ctx, pod.Spec.NodeName)
		for key, value := range nodeLabels {
			w.g.Expect(node.Labels).To(gomega.HaveKeyWithValue(key, value), "pod %s on node %s", pod.Name, node.Name)
		}
	}
	return pods
}

// MakeRunning makes a TrainJob, after what it needs, and waits until it EventuallyRuns.
func (w *World) MakeRunning(
	ctx context.Context, job *kit.TrainJobBuilder, n int, nodeLabels map[string]string, needs ...client.Object,
) []corev1.Pod {
	w.Make(ctx, append(needs, job.Obj())...)
	return w.EventuallyRuns(ctx, job.Name, n, nodeLabels)
}

// MakePending makes a TrainJob, after what it needs, and waits until Kueue keeps it waiting.
func (w *World) MakePending(ctx context.Context, job *kit.TrainJobBuilder, needs ...client.Object) {
	w.Make(ctx, append(needs, job.Obj())...)
	w.EventuallyPending(ctx, job.Name)
}

// MakeGated makes a TrainJob and waits until it is at the gate, and has so many child Jobs, if any.
func (w *World) MakeGated(ctx context.Context, job *kit.TrainJobBuilder, childJobs int) {
	w.Make(ctx, job.Obj())
	w.EventuallyAtTheGate(ctx, job.Name)
	if childJobs > 0 {
		w.EventuallyChildJobs(ctx, job.Name, childJobs)
	}
}

// MakeAdmitted makes a TrainJob and waits until Kueue has admitted it.
func (w *World) MakeAdmitted(ctx context.Context, job *kit.TrainJobBuilder) *kueue.Workload {
	w.Make(ctx, job.Obj())
	return w.EventuallyCondition(ctx, job.Name, kueue.WorkloadAdmitted)
}

// EventuallyCondition waits for a condition of a TrainJob's Workload and gives the Workload.
func (w *World) EventuallyCondition(ctx context.Context, job, condition string) *kueue.Workload {
	return w.EventuallyWorkload(ctx, job, True(condition))
}

// Running matches a pod that runs, and is not deleted.
func Running() gomegatypes.GomegaMatcher {
	return gomega.And(gomega.HaveField("DeletionTimestamp", gomega.BeNil()), gomega.HaveField("Status.Phase", corev1.PodRunning))
}

// True matches an object that has a condition, which is true.
func True(condition string) gomegatypes.GomegaMatcher {
	return Condition(condition, metav1.ConditionTrue)
}

// Condition matches an object that has a condition, for a reason if that is given.
func Condition(name string, status metav1.ConditionStatus, reason ...string) gomegatypes.GomegaMatcher {
	is := []gomegatypes.GomegaMatcher{gomega.HaveField("Type", gomega.BeEquivalentTo(name)), gomega.HaveField("Status", gomega.BeEquivalentTo(status))}
	for _, reason := range reason {
		is = append(is, gomega.HaveField("Reason", reason))
	}
	return gomega.HaveField("Status.Conditions", gomega.ContainElement(gomega.And(is...)))
}

// EventuallyIs reads an object of the world's namespace, or a cluster-wide one, until all of this is true of it.
func (w *World) EventuallyIs(ctx context.Context, obj client.Object, name string, is ...gomegatypes.GomegaMatcher) {
	w.g.Eventually(ctx, func() (client.Object, error) { return obj, w.read(ctx, obj, name) }).Should(gomega.And(is...), "%T %s", obj, name)
}

// EventuallyWorkload waits until a TrainJob has a Workload of which all of this is true, and returns it.
func (w *World) EventuallyWorkload(ctx context.Context, job string, is ...gomegatypes.GomegaMatcher) *kueue.Workload {
	var wl *kueue.Workload
	w.g.Eventually(ctx, func() *kueue.Workload {
		wl = w.Workload(ctx, job)
		return wl
	}).Should(gomega.And(append([]gomegatypes.GomegaMatcher{gomega.Not(gomega.BeNil())}, is...)...))
	return wl
}

// EventuallyNoWorkload waits until a TrainJob has no Workload.
func (w *World) EventuallyNoWorkload(ctx context.Context, job string) {
	w.g.Eventually(ctx, w.Workload).WithArguments(ctx, job).Should(gomega.BeNil())
}

// EventuallyPods waits until a TrainJob has so many pods.
func (w *World) EventuallyPods(ctx context.Context, job string, n int) {
	w.g.Eventually(ctx, w.Pods).WithArguments(ctx, job).Should(gomega.HaveLen(n))
}

// EventuallyPending waits until a TrainJob's Workload is there and was looked at by Kueue, which keeps it waiting.
func (w *World) EventuallyPending(ctx context.Context, job string) {
	w.EventuallyWorkload(ctx, job, Condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse))
}

// EventuallyGone waits until a deleted object is no more: while finalizers hold it, none of its name can be made.
func (w *World) EventuallyGone(ctx context.Context, obj client.Object) {
	w.g.Eventually(ctx, func() bool {
		return apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object)))
	}).Should(gomega.BeTrue(), "%T %s", obj, obj.GetName())
}

// ConsistentlyUnbound watches that no pod of a TrainJob gets a node.
func (w *World) ConsistentlyUnbound(ctx context.Context, job string) {
	bound := gomega.HaveField("Spec.NodeName", gomega.Not(gomega.BeEmpty()))
	w.g.Consistently(ctx, w.Pods).WithArguments(ctx, job).ShouldNot(gomega.ContainElement(bound))
}

// ConsistentlyKeeps watches that the pods and the Workload of a TrainJob stay the same,
// from when the manager has come to what happened after the test's last change.
func (w *World) ConsistentlyKeeps(ctx context.Context, job string, pods []corev1.Pod, wl *kueue.Workload) {
	w.EventuallyCaughtUp(ctx)
	w.g.Consistently(ctx, func(g gomega.Gomega) {
		g.Expect(w.Workload(ctx, job)).To(gomega.HaveField("UID", wl.UID), "the Workload of %s", job)
		g.Expect(UIDs(w.Pods(ctx, job))).To(gomega.ConsistOf(UIDs(pods)))
	}).WithTimeout(time.Second).Should(gomega.Succeed())
}

// ConsistentlyIdle watches that a TrainJob gets no pod, from when the manager has come to what happened before.
func (w *World) ConsistentlyIdle(ctx context.Context, job string) {
	w.EventuallyCaughtUp(ctx)
	w.g.Consistently(ctx, w.Pods).WithArguments(ctx, job).WithTimeout(time.Second).Should(gomega.BeEmpty())
}

// EventuallyCaughtUp waits for the Workload of a new TrainJob: events before it are dealt with, or about to be.
func (w *World) EventuallyCaughtUp(ctx context.Context) {
	name := "sentinel-" + rand.String(5)
	w.Make(ctx, w.Job(name).Queue("nowhere").Obj())
	w.EventuallyWorkload(ctx, name)
}

// EventuallyAtTheGate waits until a TrainJob is suspended and our last entry holds only the gate, which in-tree has not.
func (w *World) EventuallyAtTheGate(ctx context.Context, job string) {
	is := []gomegatypes.GomegaMatcher{gomega.HaveField("Spec.Suspend", gomega.HaveValue(gomega.BeTrue()))}
	if w.Cluster.Integration == External {
		is = append(is, gomega.Satisfy(GatedEntry))
	}
	w.EventuallyIs(ctx, &trainer.TrainJob{}, job, is...)
}

// GatedEntry reports whether the last entry is ours and says nothing but the gate, for every replicated job it names.
func GatedEntry(t *trainer.TrainJob) bool {
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

// EventuallyChildJobs waits until JobSet has made n child Jobs of a TrainJob.
func (w *World) EventuallyChildJobs(ctx context.Context, job string, n int) {
	w.g.Eventually(ctx, w.ChildJobs).WithArguments(ctx, job).Should(gomega.HaveLen(n))
}

// EventNotes returns the notes of the events with a reason on an object of the world.
func (w *World) EventNotes(ctx context.Context, kind, name, reason string) []string {
	var list eventsv1.EventList
	w.list(ctx, &list)
	var notes []string
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// EventuallyNotes waits for what events of a TrainJob say for a reason.
func (w *World) EventuallyNotes(ctx context.Context, job, reason string) gomega.AsyncAssertion {
	return w.g.Eventually(ctx, w.EventNotes).WithArguments(ctx, "TrainJob", job, reason)
}

// EventuallyTold waits for an event of a TrainJob with a note that has all of these words.
func (w *World) EventuallyTold(ctx context.Context, job, reason string, words ...string) {
	var all []gomegatypes.GomegaMatcher
	for _, word := range words {
		all = append(all, gomega.ContainSubstring(word))
	}
	w.EventuallyNotes(ctx, job, reason).Should(gomega.ContainElement(gomega.And(all...)))
}

// Names returns the names of the objects of a kind.
func (w *World) Names(ctx context.Context, list client.ObjectList) ([]string, error) {
	var names []string
	err := w.List(ctx, list, client.InNamespace(w.Namespace))
	_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
		names = append(names, obj.(client.Object).GetName())
		return nil
	})
	return names, err
}

// Dump prints what a person would look at first.
func (w *World) Dump(ctx context.Context) {
	for _, list := range []client.ObjectList{
		&trainer.TrainJobList{}, &kueue.WorkloadList{}, &jobsetapi.JobSetList{}, &batchv1.JobList{}, &corev1.PodList{},
	} {
		err := w.List(ctx, list, client.InNamespace(w.Namespace))
		_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
			obj.(client.Object).SetManagedFields(nil)
			return nil
		})
		data, _ := yaml.Marshal(list)
		fmt.Fprintf(w.log, "---- %s %T\n%s%v\n", w.Cluster.Name, list, data, err)
	}
	var events eventsv1.EventList
	if err := w.List(ctx, &events, client.InNamespace(w.Namespace)); err != nil {
		fmt.Fprintln(w.log, "dump:", err)
	}
	slices.SortFunc(events.Items, func(a, b eventsv1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, e := range events.Items[max(0, len(events.Items)-40):] {
		fmt.Fprintf(w.log, "%s %s %s %s/%s %s: %s\n",
			w.Cluster.Name, e.CreationTimestamp.Format("15:04:05"), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
	}
}

// OfReplicatedJob picks the pods of one replicated job.
func OfReplicatedJob(pods []corev1.Pod, name string) []corev1.Pod {
	others := func(pod corev1.Pod) bool { return pod.Labels[jobsetapi.ReplicatedJobNameKey] != name }
	return slices.DeleteFunc(slices.Clone(pods), others)
}

// Tolerations returns what a pod tolerates, without what Kubernetes adds to every pod.
func Tolerations(pod *corev1.Pod) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range pod.Spec.Tolerations {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			out = append(out, t)
		}
	}
	return out
}

// UIDs returns those of pods.
func UIDs(pods []corev1.Pod) []apitypes.UID {
	var out []apitypes.UID
	for _, p := range pods {
		out = append(out, p.UID)
	}
	return out
}
