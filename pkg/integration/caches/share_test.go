// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
