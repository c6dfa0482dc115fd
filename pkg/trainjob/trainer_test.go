// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTrainerVersionOf(t *testing.T) {
	type row struct {
		fields   string
		unserved bool
		want     TrainerVersion
	}
	expect.Rows(t, map[string]row{
		"podTemplateOverrides":         {fields: "podTemplateOverrides: {type: array, items: {type: object}}", want: Trainer21},
		"runtimePatches":               {fields: "runtimePatches: {type: array, items: {type: object}}", want: Trainer22},
		"both":                         {fields: "podTemplateOverrides: {type: array}, runtimePatches: {type: array}", want: Trainer22},
		"neither, as Trainer 2.0":      {fields: "podSpecOverrides: {type: array}"},
		"a list whose items are bare":  {fields: "runtimePatches: {type: array, items: {}}", want: Trainer22},
		"a field of its name, deeper":  {fields: "other: {type: object, properties: {runtimePatches: {type: array}}}"},
		"only speaking of the field":   {fields: "other: {type: string, description: runtimePatches}"},
		"a schema without any of them": {fields: ""},
		"a version that is not served": {fields: "runtimePatches: {type: array}", unserved: true},
	}, func(t *testing.T, tc row) {
		got, err := TrainerVersionOf(expect.FromYAML[*apiextensionsv1.CustomResourceDefinition](t, `
metadata: {name: trainjobs.trainer.kubeflow.org}
spec: {versions: [{name: v1alpha1, served: `+strconv.FormatBool(!tc.unserved)+`, schema: {openAPIV3Schema: {properties: {spec: {properties: {`+tc.fields+`}}}}}}]}`))
		expect.That(t, got == tc.want && (err != nil) == (tc.want == 0), "TrainerVersionOf returned %d, %v; want %d", got, err, tc.want)
	})
}

func TestTrainerVersionOfTheTrainerWeAreBuiltWith(t *testing.T) {
	data := expect.Must(os.ReadFile(filepath.Join(trainerDir(t), "manifests", "base", "crds", "trainer.kubeflow.org_trainjobs.yaml")))(t)
	crd := expect.FromYAML[*apiextensionsv1.CustomResourceDefinition](t, string(data))
	expect.Same(t, "Unexpected version", Trainer23, expect.Must(TrainerVersionOf(crd))(t))
}

func TestOlderTrainersReplaceResources(t *testing.T) {
	replaced := corev1.ResourceRequirements{Limits: kit.Amounts("nvidia.com/gpu", "8")}
	shipped := corev1.ResourceRequirements{Requests: kit.Amounts("cpu", "4"), Limits: kit.Amounts("nvidia.com/gpu", "1", "memory", "8Gi")}
	merged := corev1.ResourceRequirements{Requests: shipped.Requests, Limits: kit.Amounts("nvidia.com/gpu", "8", "memory", "8Gi")}
	type perJob = map[string]corev1.ResourceRequirements
	renderer := testRenderer(t)
	type row struct {
		served TrainerVersion
		// runtime is torchRuntime, and asked are the GPUs, where they are left out.
		runtime string
		asked   *trainer.Trainer
		// steps are what patches make of the replicated job node, one after the other.
		steps []string
		want  perJob
	}
	expect.Rows(t, map[string]row{
		"2.1":                            {served: Trainer21, want: perJob{"node": replaced, "aside": {}}},
		"2.2":                            {served: Trainer22, want: perJob{"node": replaced, "aside": {}}},
		"2.2 of MPI: launcher and nodes": {served: Trainer22, runtime: mpiRuntime, want: perJob{"node": replaced, "launcher": replaced}},
		"2.2 of MPI with a launcher beside the nodes": {served: Trainer22, runtime: strings.Replace(mpiRuntime, "AsNode: true", "AsNode: false", 1), want: perJob{"node": {}, "launcher": replaced}},
		"2.2 of MPI with something beside both": {served: Trainer22, runtime: mpiRuntime + "    - name: aside\n      template: {spec: {template: {spec: {containers: [{name: node, image: mpi}]}}}}\n",
			want: perJob{"node": replaced, "aside": {}}},
		"2.2 of a job that a patch makes another step":    {served: Trainer22, steps: []string{"none"}, want: perJob{"node": shipped}},
		"2.2 of one that a later patch makes the trainer": {served: Trainer22, steps: []string{"none", "trainer"}, want: perJob{"node": replaced}},
		"2.3 merges":           {served: Trainer23, want: perJob{"node": merged}},
		"nothing is asked for": {served: Trainer22, asked: &trainer.Trainer{}, want: perJob{"node": shipped}},
		"requests alone": {served: Trainer22, asked: &trainer.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{Requests: shipped.Requests}},
			want: perJob{"node": {Requests: shipped.Requests}}},
		"empty resources are none": {served: Trainer22, asked: &trainer.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{}}, want: perJob{"node": shipped}},
	}, func(t *testing.T, tc row) {
		stored := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}, Spec: *expect.FromYAML[*trainer.TrainingRuntimeSpec](t, cmp.Or(tc.runtime, torchRuntime))}
		c := kit.Fake(testScheme, stored).Build()
		runtimes := NewRuntimes(c, c)
		runtimes.Served = tc.served
		job := jobWithTrainer(cmp.Or(tc.asked, &trainer.Trainer{ResourcesPerNode: &replaced}))
		for _, step := range tc.steps {
			entry := `{"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"metadata":{"labels":{"trainer.kubeflow.org/trainjob-ancestor-step":"` + step + `"}}}}]}}}}`
			job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, NewRuntimePatch(json.RawMessage(entry)))
		}
		spec := expect.Must(runtimes.For(t.Context(), job))(t)
		js := expect.Must(renderer.Render(t.Context(), job, spec, nil))(t)
		for name, want := range tc.want {
			got := replicatedJob(t, js, name).Template.Spec.Template.Spec.Containers[0].Resources
			expect.Same(t, fmt.Sprintf("Unexpected resources of %s", name), want, got)
		}
	})
}

func TestOlderTrainersReplaceResourcesOfTheNodeContainerAlone(t *testing.T) {
	gpus, own := kit.GPUResources("8"), corev1.ResourceRequirements{Limits: kit.Amounts("cpu", "1")}
	spec := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, torchRuntime)
	for i := range spec.Template.Spec.ReplicatedJobs {
		pod := &spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		pod.Containers = append(pod.Containers, corev1.Container{Name: "beside", Resources: own})
	}
	before := spec.DeepCopy()
	replaced := replaceResources(spec, jobWithTrainer(&trainer.Trainer{ResourcesPerNode: &gpus}))
	for _, rj := range replaced.Template.Spec.ReplicatedJobs {
		containers := rj.Template.Spec.Template.Spec.Containers
		expect.Same(t, fmt.Sprintf("the container beside %s", rj.Name), own, containers[len(containers)-1].Resources)
	}
	expect.Same(t, "The runtime, which others use, changed", before, spec)
}

func TestSameMeaning(t *testing.T) {
	type row struct {
		a, b string
		want bool
	}
	expect.Rows(t, map[string]row{
		"equal bytes":                            {a: `{"a":[1,"x",null,true]}`, b: `{"a":[1,"x",null,true]}`, want: true},
		"another order of keys":                  {a: `{"a":1,"b":2}`, b: `{"b":2,"a":1}`, want: true},
		"a number and the same amount as string": {a: `{"limits":{"nvidia.com/gpu":8}}`, b: `{"limits":{"nvidia.com/gpu":"8"}}`, want: true},
		"one amount in two units":                {a: `[{"requests":{"memory":"1024Mi"}}]`, b: `[{"requests":{"memory":"1Gi"}}]`, want: true},
		"a size limit in two units":              {a: `{"emptyDir":{"sizeLimit":"2048Mi"}}`, b: `{"emptyDir":{"sizeLimit":"2Gi"}}`, want: true},
		"another amount":                         {a: `{"limits":{"nvidia.com/gpu":8}}`, b: `{"limits":{"nvidia.com/gpu":"4"}}`},
		"a part of a resource in two units":      {a: `{"resourceFieldRef":{"divisor":"1024Mi"}}`, b: `{"resourceFieldRef":{"divisor":"1Gi"}}`, want: true},
		"a divisor that is left out":             {a: `{"resourceFieldRef":{"resource":"limits.cpu"}}`, b: `{"resourceFieldRef":{"resource":"limits.cpu","divisor":"0"}}`, want: true},
		"a divisor that is left out and another": {a: `{"resourceFieldRef":{"resource":"limits.cpu"}}`, b: `{"resourceFieldRef":{"resource":"limits.cpu","divisor":"1"}}`},
		"labels with the names of amounts":       {a: `{"labels":{"limits":"1","sizeLimit":"1","divisor":"1"}}`, b: `{"labels":{"limits":"1.0","sizeLimit":"1.0","divisor":"1.0"}}`},
		"a node selector called limits":          {a: `{"nodeSelector":{"limits":"1"}}`, b: `{"nodeSelector":{"limits":"1.0"}}`},
		"a driver's attribute called sizeLimit":  {a: `{"csi":{"volumeAttributes":{"sizeLimit":"1Gi"}}}`, b: `{"csi":{"volumeAttributes":{"sizeLimit":"1024Mi"}}}`},
		"text that reads like an amount":         {a: `{"env":[{"name":"V","value":"1.10"}]}`, b: `{"env":[{"name":"V","value":"1.1"}]}`},
		"numbers that a float takes for one":     {a: `9007199254740993`, b: `9007199254740992`},
		"strings that are no amounts":            {a: `"python"`, b: `"Python"`},
		"one string more":                        {a: `["a"]`, b: `["a","b"]`},
		"another order of a list":                {a: `["a","b"]`, b: `["b","a"]`},
		"one key more":                           {a: `{"a":1}`, b: `{"a":1,"b":null}`},
		"another key":                            {a: `{"a":1}`, b: `{"b":1}`},
		"null and zero":                          {a: `null`, b: `0`},
		"true and a string":                      {a: `true`, b: `"true"`},
		"a map and a list":                       {a: `{}`, b: `[]`},
		"a string and a map":                     {a: `"a"`, b: `{}`},
		"no JSON at all":                         {a: `{`, b: `{`},
		"nothing":                                {},
	}, func(t *testing.T, tc row) {
		for _, pair := range [][2]string{{tc.a, tc.b}, {tc.b, tc.a}} {
			expect.Same(t, "Unexpected SemanticallyEqual", tc.want, SemanticallyEqual([]byte(pair[0]), []byte(pair[1])))
		}
	})
}

func TestSameButTime(t *testing.T) {
	type row struct {
		a, b string
		want bool
	}
	expect.Rows(t, map[string]row{
		"another time":                   {a: `{"manager":"m","time":"2026-01-01T00:00:00Z"}`, b: `{"manager":"m","time":"2026-01-02T00:00:00Z"}`, want: true},
		"a time and none":                {a: `{"manager":"m","time":"2026-01-01T00:00:00Z"}`, b: `{"manager":"m"}`, want: true},
		"a time further down counts":     {a: `{"x":{"time":1}}`, b: `{"x":{"time":2}}`},
		"an unknown field more":          {a: `{"manager":"m","future":null}`, b: `{"manager":"m"}`},
		"another manager":                {a: `{"manager":"m"}`, b: `{"manager":"n"}`},
		"an entry and none":              {a: `{}`, b: `null`},
		"equal entries that are no maps": {a: `7`, b: `7`, want: true},
		"entries that are no maps":       {a: `7`, b: `8`},
	}, func(t *testing.T, tc row) {
		a, b := expect.FromJSON[RuntimePatch](t, tc.a), expect.FromJSON[RuntimePatch](t, tc.b)
		expect.That(t, a.SameButTime(b) == tc.want && b.SameButTime(a) == tc.want, "SameButTime is not %t for %s and %s", tc.want, tc.a, tc.b)
	})
}

func TestPodTemplateOverrideKeepsItsBytes(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, []string]{
		"an override":           {In: `{"spec": {"future":false,"volumes":[]},"targetJobs":[{"name":"node"},{"name":"launcher"}]}`, Want: []string{"node", "launcher"}},
		"no targets":            {In: `{"targetJobs":null}`},
		"targets of text":       {In: `{"targetJobs":"node"}`},
		"fields of other cases": {In: `{"TargetJobs":[{"name":"node"}]}`},
		"a number":              {In: `7`},
	}, func(t *testing.T, tc expect.Row[string, []string]) {
		var o, same RuntimePatch
		expect.NoError(t, errors.Join(o.UnmarshalJSON([]byte(tc.In)), same.UnmarshalJSON([]byte(tc.In))))
		expect.Same(t, "Unexpected target jobs", tc.Want, o.TargetJobs)
		expect.Same(t, "Unexpected bytes", tc.In, string(expect.Must(o.MarshalJSON())(t)))
		expect.That(t, o.Equal(same) && !o.Equal(RuntimePatch{}), "Equal is wrong about %s", tc.In)
	})
}
