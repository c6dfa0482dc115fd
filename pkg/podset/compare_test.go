// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestSameSelection(t *testing.T) {
	one := func() []kueue.PodSet {
		return []kueue.PodSet{{
			Name: "node", Count: 1, TopologyRequest: &kueue.PodSetTopologyRequest{Required: new("rack")},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"pool": "h100"}, PriorityClassName: "high", RuntimeClassName: new("nvidia"),
				Affinity:   &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
				Containers: []corev1.Container{{Name: "node", Image: "a"}},
			}},
		}}
	}
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for name, tc := range map[string]struct {
		change func(*kueue.PodSet)
		want   bool
	}{
		"nothing changed":       {change: func(*kueue.PodSet) {}, want: true},
		"another image":         {change: func(p *kueue.PodSet) { p.Template.Spec.Containers[0].Image = "b" }, want: true},
		"more pods":             {change: func(p *kueue.PodSet) { p.Count = 8 }, want: true},
		"another PodSet":        {change: func(p *kueue.PodSet) { p.Name = "other" }},
		"another node selector": {change: func(p *kueue.PodSet) { p.Template.Spec.NodeSelector["pool"] = "a100" }},
		"one key more":          {change: func(p *kueue.PodSet) { p.Template.Spec.NodeSelector["zone"] = "z" }},
		"no affinity":           {change: func(p *kueue.PodSet) { p.Template.Spec.Affinity = nil }},
		"another runtime class": {change: func(p *kueue.PodSet) { p.Template.Spec.RuntimeClassName = nil }},
		"overhead":              {change: func(p *kueue.PodSet) { p.Template.Spec.Overhead = cpu }},
		"resources of the pod":  {change: func(p *kueue.PodSet) { p.Template.Spec.Resources = &corev1.ResourceRequirements{Limits: cpu} }},
		"a claim":               {change: func(p *kueue.PodSet) { p.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }},
		"another priority":      {change: func(p *kueue.PodSet) { p.Template.Spec.PriorityClassName = "low" }},
		"another topology":      {change: func(p *kueue.PodSet) { p.TopologyRequest.Required = new("block") }},
		"no topology":           {change: func(p *kueue.PodSet) { p.TopologyRequest = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			changed := one()
			tc.change(&changed[0])
			expect.Same(t, "Unexpected SameSelection", tc.want, SameSelection(one(), changed))
			expect.That(t, !SameSelection(one(), append(changed, changed[0])), "a list with one PodSet more is not the same")
		})
	}
}

func TestAddTolerations(t *testing.T) {
	amd, intel := exists("amd.com/gpu"), exists("gpu.intel.com/i915")
	rules := []TolerationRule{
		{Resources: []string{"amd.com/gpu"}, Tolerations: []corev1.Toleration{amd}},
		{Resources: []string{"gpu.intel.com/*", "habana.ai/gaudi"}, Tolerations: []corev1.Toleration{intel}},
	}
	for name, tc := range map[string]struct {
		job  *jobBuilder
		want []corev1.Toleration
	}{
		"no resources":                      {job: makeJob("node")},
		"a resource of no rule":             {job: makeJob("node").gpus("example.com/npu")},
		"a resource by its name":            {job: makeJob("node").gpus("amd.com/gpu"), want: []corev1.Toleration{amd}},
		"only the whole name":               {job: makeJob("node").gpus("amd.com/gpu.shared")},
		"a resource by how its name begins": {job: makeJob("node").gpus("gpu.intel.com/xe"), want: []corev1.Toleration{intel}},
		"a resource by the rule's second":   {job: makeJob("node").gpus("habana.ai/gaudi"), want: []corev1.Toleration{intel}},
		"a toleration that is there":        {job: makeJob("node").gpus("amd.com/gpu").tolerations(amd), want: []corev1.Toleration{amd}},
		"beside NVIDIA's own":               {job: makeJob("node").gpus("nvidia.com/gpu"), want: []corev1.Toleration{exists("nvidia.com/gpu")}},
	} {
		t.Run(name, func(t *testing.T) {
			podSets := expect.Must(fromJobSet(jobSet(tc.job)))(t)
			for _, pass := range []string{"once", "twice"} {
				AddTolerations(podSets, rules)
				expect.Same(t, fmt.Sprintf("Applied %s: unexpected tolerations", pass), tc.want, podSets[0].Template.Spec.Tolerations, cmpopts.EquateEmpty())
			}
		})
	}
}

func TestSameResources(t *testing.T) {
	one := func() []kueue.PodSet {
		return []kueue.PodSet{{Name: "node", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "node", Image: "a"}},
		}}}}
	}
	gpu := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	always := corev1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		change func([]kueue.PodSet)
		want   bool
	}{
		"nothing changed":            {change: func([]kueue.PodSet) {}, want: true},
		"another image":              {change: func(p []kueue.PodSet) { p[0].Template.Spec.Containers[0].Image = "b" }, want: true},
		"more pods":                  {change: func(p []kueue.PodSet) { p[0].Count = 8 }},
		"another PodSet":             {change: func(p []kueue.PodSet) { p[0].Name = "other" }},
		"a GPU as a limit":           {change: func(p []kueue.PodSet) { p[0].Template.Spec.Containers[0].Resources.Limits = gpu }},
		"a GPU in an init container": {change: func(p []kueue.PodSet) { p[0].Template.Spec.InitContainers[0].Resources.Requests = gpu }},
		"an init container runs on":  {change: func(p []kueue.PodSet) { p[0].Template.Spec.InitContainers[0].RestartPolicy = &always }},
		"one container less":         {change: func(p []kueue.PodSet) { p[0].Template.Spec.Containers = nil }},
		"another runtime class":      {change: func(p []kueue.PodSet) { p[0].Template.Spec.RuntimeClassName = new("kata") }},
		"overhead":                   {change: func(p []kueue.PodSet) { p[0].Template.Spec.Overhead = gpu }},
	} {
		t.Run(name, func(t *testing.T) {
			changed := one()
			tc.change(changed)
			expect.Same(t, "Unexpected SameResources", tc.want, SameResources(one(), changed))
		})
	}
}

func TestDifference(t *testing.T) {
	nvidia := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	spot := corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}
	team := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists}
	rules := []TolerationRule{{Resources: []string{"nvidia.com/*"}, Tolerations: []corev1.Toleration{team}}}
	of := func(change func(*kueue.PodSet), tolerations ...corev1.Toleration) []kueue.PodSet {
		ps := kueue.PodSet{Name: "node", Count: 2}
		ps.Template.Spec.Tolerations = tolerations
		ps.Template.Spec.Containers = []corev1.Container{{Name: "node", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}
		if change != nil {
			change(&ps)
		}
		return []kueue.PodSet{ps}
	}
	job := of(nil, spot, nvidia, team)
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for name, tc := range map[string]struct {
		prebuilt []kueue.PodSet
		want     string
	}{
		"the same":                                {prebuilt: job},
		"what is added is missing":                {prebuilt: of(nil, spot)},
		"a part of what is added is missing":      {prebuilt: of(nil, spot, nvidia)},
		"the order is of no meaning":              {prebuilt: of(nil, team, nvidia, spot)},
		"what the TrainJob tolerates is missing":  {prebuilt: of(nil, nvidia, team), want: `PodSet "node" differs in template.spec.tolerations`},
		"it tolerates what the TrainJob does not": {prebuilt: of(nil, spot, corev1.Toleration{Operator: corev1.TolerationOpExists}), want: `PodSet "node" differs in template.spec.tolerations`},
		"other pods":                              {prebuilt: of(func(ps *kueue.PodSet) { ps.Count = 1 }), want: `PodSet "node" has 2 pods in the TrainJob, 1 in the Workload`},
		"another name":                            {prebuilt: of(func(ps *kueue.PodSet) { ps.Name = "main" }), want: `where the TrainJob has PodSet "node", the Workload has "main"`},
		"another image":                           {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.Containers[0].Image = "b" }, spot), want: `PodSet "node" differs in template.spec.containers`},
		"an init container":                       {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.InitContainers = []corev1.Container{{}} }, spot), want: `PodSet "node" differs in template.spec.initContainers`},
		"another runtime class":                   {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.RuntimeClassName = new("kata") }, spot), want: `PodSet "node" differs in template.spec.runtimeClassName`},
		"overhead":                                {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.Overhead = cpu }, spot), want: `PodSet "node" differs in template.spec.overhead`},
		"pod-level resources":                     {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.Resources = &corev1.ResourceRequirements{Requests: cpu} }, spot), want: `PodSet "node" differs in template.spec.resources`},
		"claims":                                  {prebuilt: of(func(ps *kueue.PodSet) { ps.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, spot), want: `PodSet "node" differs in template.spec.resourceClaims`},
		"part of it may be admitted":              {prebuilt: of(func(ps *kueue.PodSet) { ps.MinCount = &ps.Count }, spot), want: `PodSet "node" differs in minCount`},
		"one more":                                {prebuilt: append(of(nil, spot), of(nil, spot)...), want: "the TrainJob has 1 PodSets, the Workload 2"},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected Difference", tc.want, Difference(job, tc.prebuilt, rules))
		})
	}
}

func TestTopologyDifference(t *testing.T) {
	unlike := `PodSet "node" differs in topologyRequest`
	ranks := &kueue.PodSetTopologyRequest{PodIndexLabel: new("rank")}
	block := &kueue.PodSetTopologyRequest{PodIndexLabel: new("rank"), Required: new("block")}
	sliced := &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(2))}
	for name, tc := range map[string]struct {
		job, prebuilt *kueue.PodSetTopologyRequest
		want          string
	}{
		"neither asks for one, one tells ranks":            {job: ranks},
		"both do, one tells ranks":                         {job: block, prebuilt: &kueue.PodSetTopologyRequest{Required: new("block")}},
		"the TrainJob alone does":                          {job: block, want: unlike},
		"the Workload alone does":                          {job: ranks, prebuilt: block, want: unlike},
		"any will do for the Workload":                     {job: ranks, prebuilt: &kueue.PodSetTopologyRequest{Unconstrained: new(true)}, want: unlike},
		"any will do for neither, and one says that it is": {job: ranks, prebuilt: &kueue.PodSetTopologyRequest{Unconstrained: new(false)}},
		"slices in Kueue's older words": {job: sliced, prebuilt: &kueue.PodSetTopologyRequest{
			PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: "rack", Size: 2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(request *kueue.PodSetTopologyRequest) []kueue.PodSet {
				return []kueue.PodSet{{Name: "node", TopologyRequest: request}}
			}
			expect.Same(t, "Unexpected TopologyDifference", tc.want, TopologyDifference(of(tc.job), of(tc.prebuilt)))
		})
	}
}
