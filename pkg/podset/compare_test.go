// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func onePodSet() []kueue.PodSet {
	return []kueue.PodSet{{
		Name: "node", Count: 1, TopologyRequest: &kueue.PodSetTopologyRequest{Required: new("rack")},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": "h100"}, PriorityClassName: "high", RuntimeClassName: new("nvidia"),
			Affinity:       &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "node", Image: "a"}},
		}},
	}}
}

// change is one of that PodSet.
type change struct {
	of func(*kueue.PodSet)
	// selection and resources say whether these are the same still.
	selection, resources bool
	difference           string
}

// comparing compares that PodSet with what becomes of it by each change.
func comparing(t *testing.T, test func(t *testing.T, tc change, one, changed []kueue.PodSet)) {
	t.Helper()
	const in = `PodSet "node" differs in template.spec.`
	gpu := kit.Amounts("nvidia.com/gpu", "1")
	expect.Rows(t, map[string]change{
		"nothing changed":            {func(*kueue.PodSet) {}, true, true, ""},
		"another image":              {func(p *kueue.PodSet) { p.Template.Spec.Containers[0].Image = "b" }, true, true, in + "containers"},
		"part of it may be admitted": {func(p *kueue.PodSet) { p.MinCount = &p.Count }, true, true, `PodSet "node" differs in minCount`},
		"more pods":                  {func(p *kueue.PodSet) { p.Count = 8 }, true, false, `PodSet "node" has 1 pods in the TrainJob, 8 in the Workload`},
		"another PodSet":             {func(p *kueue.PodSet) { p.Name = "other" }, false, false, `where the TrainJob has PodSet "node", the Workload has "other"`},
		"another node selector":      {func(p *kueue.PodSet) { p.Template.Spec.NodeSelector["pool"] = "a100" }, false, true, ""},
		"one key more":               {func(p *kueue.PodSet) { p.Template.Spec.NodeSelector["zone"] = "z" }, false, true, ""},
		"no affinity":                {func(p *kueue.PodSet) { p.Template.Spec.Affinity = nil }, false, true, ""},
		"another priority":           {func(p *kueue.PodSet) { p.Template.Spec.PriorityClassName = "low" }, false, true, ""},
		"another topology":           {func(p *kueue.PodSet) { p.TopologyRequest.Required = new("block") }, false, true, ""},
		"no topology":                {func(p *kueue.PodSet) { p.TopologyRequest = nil }, false, true, ""},
		"a GPU as a limit":           {func(p *kueue.PodSet) { p.Template.Spec.Containers[0].Resources.Limits = gpu }, true, false, in + "containers"},
		"a GPU in an init container": {func(p *kueue.PodSet) { p.Template.Spec.InitContainers[0].Resources.Requests = gpu }, true, false, in + "initContainers"},
		"an init container runs on": {func(p *kueue.PodSet) {
			p.Template.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}, true, false, in + "initContainers"},
		"one container less":    {func(p *kueue.PodSet) { p.Template.Spec.Containers = nil }, true, false, in + "containers"},
		"another runtime class": {func(p *kueue.PodSet) { p.Template.Spec.RuntimeClassName = new("kata") }, false, false, in + "runtimeClassName"},
		"no runtime class":      {func(p *kueue.PodSet) { p.Template.Spec.RuntimeClassName = nil }, false, false, in + "runtimeClassName"},
		"overhead":              {func(p *kueue.PodSet) { p.Template.Spec.Overhead = gpu }, false, false, in + "overhead"},
		"resources of the pod":  {func(p *kueue.PodSet) { p.Template.Spec.Resources = &corev1.ResourceRequirements{Limits: gpu} }, false, false, in + "resources"},
		"a claim":               {func(p *kueue.PodSet) { p.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, false, false, in + "resourceClaims"},
	}, func(t *testing.T, tc change) {
		changed := onePodSet()
		tc.of(&changed[0])
		test(t, tc, onePodSet(), changed)
	})
}

func TestSameSelection(t *testing.T) {
	comparing(t, func(t *testing.T, tc change, one, changed []kueue.PodSet) {
		expect.Same(t, "Unexpected SameSelection", tc.selection, SameSelection(one, changed))
		expect.That(t, !SameSelection(one, append(changed, changed[0])), "a list with one PodSet more is not the same")
	})
}

func TestAddTolerations(t *testing.T) {
	amd, intel := exists("amd.com/gpu"), exists("gpu.intel.com/i915")
	rules := []TolerationRule{
		{Resources: []string{"amd.com/gpu"}, Tolerations: []corev1.Toleration{amd}},
		{Resources: []string{"gpu.intel.com/*", "habana.ai/gaudi"}, Tolerations: []corev1.Toleration{intel}},
	}
	expect.Rows(t, map[string]expect.Row[*jobBuilder, []corev1.Toleration]{
		"no resources":                      {In: makeJob("node")},
		"a resource of no rule":             {In: makeJob("node").gpus("example.com/npu")},
		"a resource by its name":            {In: makeJob("node").gpus("amd.com/gpu"), Want: []corev1.Toleration{amd}},
		"only the whole name":               {In: makeJob("node").gpus("amd.com/gpu.shared")},
		"a resource by how its name begins": {In: makeJob("node").gpus("gpu.intel.com/xe"), Want: []corev1.Toleration{intel}},
		"a resource by the rule's second":   {In: makeJob("node").gpus("habana.ai/gaudi"), Want: []corev1.Toleration{intel}},
		"a toleration that is there":        {In: makeJob("node").gpus("amd.com/gpu").tolerations(amd), Want: []corev1.Toleration{amd}},
		"beside NVIDIA's own":               {In: makeJob("node").gpus("nvidia.com/gpu"), Want: []corev1.Toleration{exists("nvidia.com/gpu")}},
	}, func(t *testing.T, tc expect.Row[*jobBuilder, []corev1.Toleration]) {
		podSets := expect.Must(fromJobSet(jobSet(tc.In)))(t)
		for _, pass := range []string{"once", "twice"} {
			AddTolerations(podSets, rules)
			expect.Same(t, fmt.Sprintf("Applied %s: unexpected tolerations", pass), tc.Want, podSets[0].Template.Spec.Tolerations, cmpopts.EquateEmpty())
		}
	})
}

func TestSameResources(t *testing.T) {
	comparing(t, func(t *testing.T, tc change, one, changed []kueue.PodSet) {
		expect.Same(t, "Unexpected SameResources", tc.resources, SameResources(one, changed))
	})
}

func TestDifference(t *testing.T) {
	comparing(t, func(t *testing.T, tc change, one, changed []kueue.PodSet) {
		expect.Same(t, "Unexpected Difference", tc.difference, Difference(one, changed, nil))
		expect.Same(t, "Unexpected Difference of two PodSets", "the TrainJob has 1 PodSets, the Workload 2", Difference(one, append(changed, changed[0]), nil))
	})
}

func TestDifferenceOfTolerations(t *testing.T) {
	const differs = `PodSet "node" differs in template.spec.tolerations`
	nvidia, spot, team := exists("nvidia.com/gpu"), exists("spot"), exists("team")
	rules := []TolerationRule{{Resources: []string{"nvidia.com/*"}, Tolerations: []corev1.Toleration{team}}}
	of := func(tolerations ...corev1.Toleration) []kueue.PodSet {
		ps := kit.PodSet("node", 2, "nvidia.com/gpu", "8")
		ps.Template.Spec.Tolerations = tolerations
		return []kueue.PodSet{ps}
	}
	difference := func(prebuilt []kueue.PodSet) string { return Difference(of(spot, nvidia, team), prebuilt, rules) }
	expect.Answers(t, difference, map[string]expect.Row[[]kueue.PodSet, string]{
		"the same":                                {In: of(spot, nvidia, team)},
		"what is added is missing":                {In: of(spot)},
		"a part of what is added is missing":      {In: of(spot, nvidia)},
		"the order is of no meaning":              {In: of(team, nvidia, spot)},
		"what the TrainJob tolerates is missing":  {In: of(nvidia, team), Want: differs},
		"it tolerates what the TrainJob does not": {In: of(spot, corev1.Toleration{Operator: corev1.TolerationOpExists}), Want: differs},
	})
}

func TestTopologyDifference(t *testing.T) {
	unlike := `PodSet "node" differs in topologyRequest`
	ranks := &kueue.PodSetTopologyRequest{PodIndexLabel: new("rank")}
	block := &kueue.PodSetTopologyRequest{PodIndexLabel: new("rank"), Required: new("block")}
	sliced := &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(2))}
	type row struct {
		job, prebuilt *kueue.PodSetTopologyRequest
		want          string
	}
	expect.Rows(t, map[string]row{
		"neither asks for one, one tells ranks":            {job: ranks},
		"both do, one tells ranks":                         {job: block, prebuilt: &kueue.PodSetTopologyRequest{Required: new("block")}},
		"the TrainJob alone does":                          {job: block, want: unlike},
		"the TrainJob's PodSets are to be together":        {job: &kueue.PodSetTopologyRequest{Required: new("block"), PodSetGroupName: new("g")}, prebuilt: block, want: unlike},
		"they prefer others":                               {job: &kueue.PodSetTopologyRequest{Preferred: new("block")}, prebuilt: &kueue.PodSetTopologyRequest{Preferred: new("rack")}, want: unlike},
		"the Workload alone does":                          {job: ranks, prebuilt: block, want: unlike},
		"any will do for the Workload":                     {job: ranks, prebuilt: &kueue.PodSetTopologyRequest{Unconstrained: new(true)}, want: unlike},
		"any will do for neither, and one says that it is": {job: ranks, prebuilt: &kueue.PodSetTopologyRequest{Unconstrained: new(false)}},
		"slices in Kueue's older words": {job: sliced, prebuilt: &kueue.PodSetTopologyRequest{
			PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: "rack", Size: 2}}}},
	}, func(t *testing.T, tc row) {
		of := func(request *kueue.PodSetTopologyRequest) []kueue.PodSet {
			return []kueue.PodSet{{Name: "node", TopologyRequest: request}}
		}
		expect.Same(t, "Unexpected TopologyDifference", tc.want, TopologyDifference(of(tc.job), of(tc.prebuilt)))
	})
}
