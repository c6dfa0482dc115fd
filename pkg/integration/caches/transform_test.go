// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"unsafe"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTrim(t *testing.T) {
	trainer, another := trainjob.GVK.GroupVersion().String(), "example.com/v1"
	ownedIn := func(version, kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "x", OwnerReferences: []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "o", Controller: new(true)}}}
	}
	owned := func(kind string) metav1.ObjectMeta { return ownedIn(trainer, kind) }
	managed := owned("TrainJob")
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	shared := owned("Job")
	shared.OwnerReferences = append(shared.OwnerReferences, metav1.OwnerReference{APIVersion: trainer, Kind: "TrainJob", Name: "o"})
	rest := owned("ClusterQueue")
	rest.Labels = map[string]string{placeholder.Label: "llm"}
	spec := kueue.WorkloadSpec{QueueName: "q"}
	gates := []corev1.PodSchedulingGate{{Name: "g"}}
	gpus := kit.GPUResources("8")
	tolerations := []corev1.Toleration{{Key: "spot"}}
	full := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Image: "i", Resources: gpus, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		Containers:     []corev1.Container{{Name: "node", Image: "i", Resources: gpus}},
		Resources:      &gpus, Overhead: gpus.Limits, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}, NodeName: "n", RuntimeClassName: new("kata"),
		NodeSelector: map[string]string{"a": "b"}, Tolerations: tolerations, SchedulingGates: gates,
	}}
	asked := full.DeepCopy()
	asked.Spec.InitContainers[0].Image, asked.Spec.Containers[0].Image = "", ""
	lean := corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}, Tolerations: tolerations, SchedulingGates: gates}}
	workload := func(meta metav1.ObjectMeta, spec kueue.WorkloadSpec) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: meta, Spec: spec}
	}
	jobSet := func(owner string, template corev1.PodTemplateSpec) *jobsetapi.JobSet {
		js := &jobsetapi.JobSet{ObjectMeta: owned(owner), Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{Name: "node"}}}}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template = template
		return js
	}
	name := map[string]string{"jobset.sigs.k8s.io/jobset-name": "js"}
	whose := union(name, map[string]string{"jobset.sigs.k8s.io/replicatedjob-name": "node"})
	counted := map[string]string{"jobset.sigs.k8s.io/job-index": "0", "batch.kubernetes.io/job-name": "js-node-0", "controller-uid": "u", "job-name": "js-node-0"}
	large := map[string]string{"a": strings.Repeat("b", maxUnqueued)}
	exclusive := map[string]string{jobsetapi.ExclusiveKey: "rack"}
	placed := map[string]string{"kueue.x-k8s.io/podset": "node", "team": "red"}
	overridden := map[string]string{patch.ManagerAnnotation: patch.Manager}
	behindGate := corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}}
	gatedLabel := map[string]string{patch.GatedLabel: "true"}
	pod := func(spec corev1.PodSpec, gate string, labels map[string]string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: labels}, Spec: spec}
		if p.Spec.SchedulingGates = nil; gate != "" {
			p.Spec.SchedulingGates, p.Annotations = []corev1.PodSchedulingGate{{Name: gate}}, map[string]string{"kueue.x-k8s.io/workload": "w"}
		}
		return p
	}
	finalized := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/long"} }
	child := func(owner string, labels map[string]string, template corev1.PodTemplateSpec, both map[string]string) *batchv1.Job {
		template.Labels, template.Annotations = maps.Clone(both), maps.Clone(both)
		job := &batchv1.Job{ObjectMeta: owned(owner), Spec: batchv1.JobSpec{Template: template}}
		job.Labels = labels
		return job
	}
	annotated := func(gate string, annotations map[string]string) *corev1.Pod {
		p := pod(corev1.PodSpec{}, gate, maps.Clone(name))
		p.Annotations = annotations
		return p
	}
	tagged := func(meta metav1.ObjectMeta) metav1.ObjectMeta {
		meta.Labels, meta.Annotations, meta.Finalizers = maps.Clone(name), maps.Clone(large), []string{"example.com/long"}
		return meta
	}
	taggedJobSet := func(owner string) *jobsetapi.JobSet {
		js := jobSet(owner, full)
		js.ObjectMeta = tagged(js.ObjectMeta)
		return js
	}
	unread := jobSet("TrainJob", *asked)
	unread.Labels, unread.Finalizers = name, []string{"example.com/long"}
	type row struct {
		trim     func(any) (any, error)
		in, want any
	}
	expect.Rows(t, map[string]row{
		"a TrainJob's Workload loses its managed fields":                    {trim: trimWorkload, in: workload(managed, spec), want: workload(owned("TrainJob"), spec)},
		"another kind's Workload keeps its name":                            {trim: trimWorkload, in: workload(tagged(owned("Job")), spec), want: workload(owned("Job"), kueue.WorkloadSpec{})},
		"another kind's Workload that a TrainJob owns as well stays":        {trim: trimWorkload, in: workload(tagged(shared), spec), want: workload(tagged(shared), spec)},
		"a Workload for pods that are left stays":                           {trim: trimWorkload, in: workload(rest, spec), want: workload(rest, spec)},
		"a Workload without an owner stays":                                 {trim: trimWorkload, in: &kueue.Workload{Spec: spec}, want: &kueue.Workload{Spec: spec}},
		"a TrainJob's JobSet keeps where its pods go and what they ask for": {trim: trimJobSet, in: taggedJobSet("TrainJob"), want: unread},
		"another group's TrainJob's Workload keeps its name":                {trim: trimWorkload, in: workload(tagged(ownedIn(another, "TrainJob")), spec), want: workload(ownedIn(another, "TrainJob"), kueue.WorkloadSpec{})},
		"another group's TrainJob's JobSet keeps its name":                  {trim: trimJobSet, in: &jobsetapi.JobSet{ObjectMeta: tagged(ownedIn(another, "TrainJob")), Spec: jobSet("", full).Spec}, want: &jobsetapi.JobSet{ObjectMeta: ownedIn(another, "TrainJob")}},
		"another kind's JobSet keeps its name":                              {trim: trimJobSet, in: taggedJobSet("AppWrapper"), want: &jobsetapi.JobSet{ObjectMeta: owned("AppWrapper")}},
		"a JobSet of nobody's keeps its name":                               {trim: trimJobSet, in: &jobsetapi.JobSet{ObjectMeta: tagged(metav1.ObjectMeta{}), Spec: jobSet("", full).Spec}, want: &jobsetapi.JobSet{}},
		"a pod behind the gate keeps where it goes": {trim: trimPod, in: pod(full.Spec, patch.AdmissionGate, union(name, placed)),
			want: pod(corev1.PodSpec{NodeSelector: full.Spec.NodeSelector, Tolerations: tolerations}, patch.AdmissionGate, union(name, placed))},
		"the same keeps of its annotations what an admission may change": {trim: trimPod,
			in:   annotated(patch.AdmissionGate, union(counted, name, map[string]string{"kueue.x-k8s.io/workload": "w", "a": "b"})),
			want: annotated(patch.AdmissionGate, union(name, map[string]string{"kueue.x-k8s.io/workload": "w"}))},
		"a pod behind another gate keeps that it is there": {trim: trimPod, in: pod(full.Spec, "example.com/g", union(name, gatedLabel, placed)),
			want: pod(corev1.PodSpec{}, "", union(name, gatedLabel))},
		"a pod of no JobSet keeps that it is there": {trim: trimPod, in: kit.With(pod(full.Spec, patch.AdmissionGate, union(gatedLabel, placed)), finalized), want: pod(corev1.PodSpec{}, "", gatedLabel)},
		"a Job keeps whose it is, where its pods go and whether they wait for the first": {trim: TrimJob,
			in:   child("JobSet", union(whose, counted), full, union(counted, placed, name, exclusive)),
			want: child("JobSet", whose, lean, union(placed, name, exclusive))},
		"a Job that waits keeps where its pods go":                 {trim: TrimJob, in: child("JobSet", whose, full, union(gatedLabel, name)), want: child("JobSet", whose, lean, union(gatedLabel, name))},
		"a Job that nobody has queued yet keeps where its pods go": {trim: TrimJob, in: child("JobSet", whose, full, name), want: child("JobSet", whose, lean, name)},
		"a large Job that is placed keeps where its pods go":       {trim: TrimJob, in: child("JobSet", whose, full, union(placed, name, large)), want: child("JobSet", whose, lean, union(placed, name, large))},
		"a large Job that waits does":                              {trim: TrimJob, in: child("JobSet", whose, full, union(gatedLabel, name, large)), want: child("JobSet", whose, lean, union(gatedLabel, name, large))},
		"a large Job of an override does":                          {trim: TrimJob, in: child("JobSet", whose, full, union(overridden, name, large)), want: child("JobSet", whose, lean, union(overridden, name, large))},
		"a large Job behind the gate does":                         {trim: TrimJob, in: child("JobSet", whose, behindGate, union(name, large)), want: child("JobSet", whose, behindGate, union(name, large))},
		"a large Job that nobody queues keeps whose it is":         {trim: TrimJob, in: child("JobSet", whose, full, union(name, large)), want: child("JobSet", whose, corev1.PodTemplateSpec{}, nil)},
		"a large Job that JobSet did not make keeps whose it says it is": {trim: TrimJob, in: child("CronJob", whose, full, union(placed, name, large)),
			want: child("CronJob", whose, corev1.PodTemplateSpec{}, nil)},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected object", tc.want, expect.Must(tc.trim(tc.in))(t))
	})
}

func union(of ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range of {
		maps.Copy(all, m)
	}
	return all
}

// What the API server sends of two jobs is decoded twice, and kept once.
func TestCompact(t *testing.T) {
	decoded := func(requested string) *trainjob.TrainJob {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{strings.Clone("queue"): strings.Clone("team-a")}}}
		job.Status.Conditions = []metav1.Condition{{Message: strings.Clone("waits for 8 more")}}
		job.Spec.Trainer = &trainer.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{Requests: kit.Amounts("cpu", requested), Limits: kit.Amounts("cpu", "2")}}
		return job
	}
	// where says in which memory a job's equal parts are.
	where := func(job *trainjob.TrainJob) []string {
		var out []string
		for key, value := range job.Labels {
			out = append(out, fmt.Sprintf("%p %p", unsafe.StringData(key), unsafe.StringData(value)))
		}
		return append(out, fmt.Sprintf("%p", unsafe.StringData(job.Status.Conditions[0].Message)))
	}
	first, second := decoded("2"), decoded("2")
	for _, job := range []*trainjob.TrainJob{first, second} {
		before := job.DeepCopy()
		expect.Must(Compact(job))(t)
		expect.Same(t, "a job says what it said", before, job)
	}
	expect.Same(t, "memory of equal strings", where(first), where(second))
	expect.That(t, first.Spec.Trainer.ResourcesPerNode == second.Spec.Trainer.ResourcesPerNode, "equal requests are kept twice")
}

// Objects with one difference, or of a tenant who makes them large, have nothing of another's.
func TestCommon(t *testing.T) {
	of := func(amount, image string) *[]kueue.PodSet {
		podSet := kit.PodSet("node", 1, "cpu", amount)
		podSet.Template.Spec.Containers[0].Image = image
		wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{podSet}}}
		expect.Must(trimWorkload(wl))(t)
		return &wl.Spec.PodSets
	}
	same := func(a, b *[]kueue.PodSet) bool { return &(*a)[0] == &(*b)[0] }
	expect.Same(t, "equal PodSets are one", true, same(of("1", ""), of("1", "")))
	expect.Same(t, "others are not", false, same(of("1", ""), of("2", "")))
	expect.Same(t, "nor are large ones", false, same(of("1", strings.Repeat("x", largest)), of("1", strings.Repeat("x", largest))))
}
