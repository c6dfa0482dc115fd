// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	first, second := decoded("2"), decoded("1")
	for _, job := range []*trainjob.TrainJob{first, second} {
		before := job.DeepCopy()
		expect.Must(Compact(job))(t)
		expect.Same(t, "a job says what it said", before, job)
	}
	expect.Same(t, "memory of equal strings", where(first), where(second))
	one := func(r *corev1.ResourceRequirements) bool {
		return reflect.ValueOf(r.Requests).Pointer() == reflect.ValueOf(r.Limits).Pointer()
	}
	expect.Same(t, "equal requests and limits are one", true, one(first.Spec.Trainer.ResourcesPerNode))
	expect.Same(t, "others are two", false, one(second.Spec.Trainer.ResourcesPerNode))
}
