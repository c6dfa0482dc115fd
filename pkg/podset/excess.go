// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Excess says in what a JobSet or its Jobs ask for more than the PodSets that quota is held
// for; empty: in nothing. Asking for less is no excess. jobs are the child Jobs that were
// made; reclaimed are the pods whose quota was given back already, which must not run again.
//
// A JobSet may have been made of another runtime than the PodSets, and a Job may be scaled:
// Kubernetes lets people change the parallelism of a Job that runs.
func Excess(js *jobsetapi.JobSet, jobs []batchv1.Job, podSets []kueue.PodSet, reclaimed []kueue.ReclaimablePod) string {
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		ps := Of(rj.Name, podSets)
		if ps == nil {
			return fmt.Sprintf("replicated job %s is not among those that the job was admitted with", rj.Name)
		}
		if excess := cmp.Or(tooManyPods(rj, jobs, ps, reclaimed), tooMuchPerPod(&rj.Template.Spec.Template.Spec, &ps.Template.Spec)); excess != "" {
			return fmt.Sprintf("replicated job %s %s", rj.Name, excess)
		}
	}
	return ""
}

// ExcessOfJob says in what one pod of a child Job asks for more than its PodSet; empty: in nothing.
func ExcessOfJob(child *batchv1.Job, podSets []kueue.PodSet) string {
	ps := Of(child.Labels[jobsetapi.ReplicatedJobNameKey], podSets)
	if ps == nil {
		return ""
	}
	if excess := tooMuchPerPod(&child.Spec.Template.Spec, &ps.Template.Spec); excess != "" {
		return fmt.Sprintf("child Job %s %s", child.Name, excess)
	}
	return ""
}

// Unstartable is Excess of a JobSet that does not run yet, or why it must not for another reason.
func Unstartable(js *jobsetapi.JobSet, jobs []batchv1.Job, podSets []kueue.PodSet, reclaimed []kueue.ReclaimablePod) string {
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		if selects := selectsPods(rj); selects != "" {
			return fmt.Sprintf("replicated job %s %s", rj.Name, selects)
		}
		if tells := tellsWhose(&rj.Template.Spec.Template.ObjectMeta); tells != "" {
			return fmt.Sprintf("replicated job %s has %s, which tells whose pods they are", rj.Name, tells)
		}
	}
	return Excess(js, jobs, podSets, reclaimed)
}

// selectsPods: a Job whose selector somebody wrote takes any pod of these labels for its own, deletes others in
// their place, and lets go of its own.
func selectsPods(rj *jobsetapi.ReplicatedJob) string {
	if rj.Template.Spec.Selector != nil || ptr.Deref(rj.Template.Spec.ManualSelector, false) {
		return "selects its pods by a selector of its own"
	}
	return ""
}

// Of returns the PodSet of a replicated job, or nil. Kueue's FindPodSetByName copies each PodSet that it looks at.
func Of(replicatedJob string, podSets []kueue.PodSet) *kueue.PodSet {
	name := kueue.NewPodSetReference(replicatedJob)
	for i := range podSets {
		if podSets[i].Name == name {
			return &podSets[i]
		}
	}
	return nil
}

func tooManyPods(rj *jobsetapi.ReplicatedJob, jobs []batchv1.Job, ps *kueue.PodSet, reclaimed []kueue.ReclaimablePod) string {
	count := int64(ps.Count)
	if want := int64(rj.Replicas) * int64(PodsPerReplica(rj)); want > count {
		return fmt.Sprintf("has %d pods instead of %d", want, ps.Count)
	}
	made, running := podsOfJobs(rj.Name, jobs)
	if made > count {
		return fmt.Sprintf("has child Jobs with %d pods instead of %d", made, ps.Count)
	}
	for _, r := range reclaimed {
		if r.Name == ps.Name && running > count-int64(r.Count) {
			return fmt.Sprintf("runs %d pods again whose quota was given back when they had succeeded", running-(count-int64(r.Count)))
		}
	}
	return ""
}

// podsOfJobs adds up the pods that the child Jobs of a replicated job run at a time, in all
// and without the Jobs that have ended.
func podsOfJobs(replicatedJob string, jobs []batchv1.Job) (made, running int64) {
	for i := range jobs {
		if jobs[i].Labels[jobsetapi.ReplicatedJobNameKey] != replicatedJob {
			continue
		}
		pods := int64(PodsOfJob(&jobs[i].Spec))
		made += pods
		if !JobEnded(&jobs[i]) {
			running += pods
		}
	}
	return made, running
}

func tooMuchPerPod(has, admitted *corev1.PodSpec) string {
	asks, quota := requestsOf(has), requestsOf(admitted)
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		if amount, held := asks[name], quota[name]; amount.Cmp(held) > 0 {
			return fmt.Sprintf("asks for %s of %s per pod instead of %s", amount.String(), name, held.String())
		}
	}
	if len(has.ResourceClaims) > 0 && !equality.Semantic.DeepEqual(has.ResourceClaims, admitted.ResourceClaims) {
		return "has other resource claims"
	}
	if has.RuntimeClassName != nil && !ptr.Equal(has.RuntimeClassName, admitted.RuntimeClassName) {
		// Its overhead is another one.
		return "has another runtime class"
	}
	if has.NodeName != "" {
		return "names node " + has.NodeName + " itself, whatever flavor the job was admitted to"
	}
	return ""
}

func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: *spec.DeepCopy()}
	defaultRequests(&pod.Spec)
	return resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
}
