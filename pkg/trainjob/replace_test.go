// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"cmp"
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestOlderTrainersReplaceResources(t *testing.T) {
	gpus := &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	replaced := corev1.ResourceRequirements{Limits: gpus.Limits}
	shipped := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("4")},
		Limits:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "memory": resource.MustParse("8Gi")},
	}
	merged := corev1.ResourceRequirements{
		Requests: shipped.Requests,
		Limits:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi")},
	}
	type perJob = map[string]corev1.ResourceRequirements
	cases := map[string]struct {
		served TrainerVersion
		// runtime is torchRuntime, and asked are the GPUs, where they are left out.
		runtime string
		asked   *trainer.Trainer
		want    perJob
	}{
		"2.1":                            {served: Trainer21, want: perJob{"node": replaced, "aside": {}}},
		"2.2":                            {served: Trainer22, want: perJob{"node": replaced, "aside": {}}},
		"2.2 of MPI: launcher and nodes": {served: Trainer22, runtime: mpiRuntime, want: perJob{"node": replaced, "launcher": replaced}},
		"2.3 merges":                     {served: Trainer23, want: perJob{"node": merged}},
		"nothing is asked for":           {served: Trainer22, asked: &trainer.Trainer{}, want: perJob{"node": shipped}},
		"empty resources are none":       {served: Trainer22, asked: &trainer.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{}}, want: perJob{"node": shipped}},
	}
	renderer := testRenderer(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}, Spec: *expect.FromYAML[*trainer.TrainingRuntimeSpec](t, cmp.Or(tc.runtime, torchRuntime))}
			c := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(stored).Build()
			runtimes := NewRuntimes(c, c)
			runtimes.Served = tc.served
			job := jobWithTrainer(cmp.Or(tc.asked, &trainer.Trainer{ResourcesPerNode: gpus}))
			spec := expect.Must(runtimes.For(t.Context(), job))(t)
			js := expect.Must(renderer.Render(t.Context(), job, spec, nil))(t)
			for name, want := range tc.want {
				got := replicatedJob(t, js, name).Template.Spec.Template.Spec.Containers[0].Resources
				expect.Same(t, fmt.Sprintf("Unexpected resources of %s", name), want, got)
			}
		})
	}
}

func TestOlderTrainersReplaceResourcesOfTheNodeContainerAlone(t *testing.T) {
	gpus := &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	own := corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	spec := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, torchRuntime)
	for i := range spec.Template.Spec.ReplicatedJobs {
		pod := &spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		pod.Containers = append(pod.Containers, corev1.Container{Name: "beside", Resources: own})
	}
	replaced := replaceResources(spec, jobWithTrainer(&trainer.Trainer{ResourcesPerNode: gpus}))
	for _, rj := range replaced.Template.Spec.ReplicatedJobs {
		containers := rj.Template.Spec.Template.Spec.Containers
		expect.Same(t, fmt.Sprintf("the container beside %s", rj.Name), own, containers[len(containers)-1].Resources)
	}
}
