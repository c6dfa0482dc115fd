// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
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

func TestChangedPodSets(t *testing.T) {
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
		one, changed := onePodSet(), onePodSet()
		tc.of(&changed[0])
		more := append(onePodSet(), changed...)
		expect.Same(t, "Unexpected SameSelection", tc.selection, SameSelection(one, changed))
		expect.That(t, !SameSelection(one, more), "a list with one PodSet more is not the same")
		expect.Same(t, "Unexpected SameResources", tc.resources, SameResources(one, changed))
		expect.Same(t, "Unexpected Difference", tc.difference, Difference(one, changed, nil))
		expect.Same(t, "Unexpected Difference of two PodSets", "the TrainJob has 1 PodSets, the Workload 2", Difference(one, more, nil))
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

func TestExcess(t *testing.T) {
	limits := func(name, amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: kit.Amounts(name, amount)}
	}
	asks := func(resources corev1.ResourceRequirements) func(*jobBuilder) {
		return func(j *jobBuilder) { j.Template.Spec.Template.Spec.Containers[0].Resources = resources }
	}
	pods := func(replicas, parallelism int32) func(*jobBuilder) {
		return func(j *jobBuilder) { j.replicas(replicas).pods(&parallelism, nil) }
	}
	child := func(parallelism int32, changes ...func(*batchv1.Job)) batchv1.Job {
		c := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobsetapi.ReplicatedJobNameKey: "node"}}}
		c.Spec.Parallelism = &parallelism
		return *kit.With(&c, changes...)
	}
	// The quota is for two Jobs of two pods with 8 GPUs.
	job := func() *jobBuilder { return kit.With(makeJob("node"), pods(2, 2), asks(kit.GPUResources("8"))) }
	admitted := []kueue.PodSet{{Name: "node", Count: 4, Template: job().Template.Spec.Template}}
	type row struct {
		// change is of what was admitted, beside which extra is.
		change    func(*jobBuilder)
		extra     []*jobBuilder
		children  []batchv1.Job
		reclaimed int32
		want      string
		// starts is what Unstartable says; empty: the same.
		starts string
	}
	expect.Rows(t, map[string]row{
		"it is what was admitted":      {},
		"a limit stands for a request": {change: asks(limits("nvidia.com/gpu", "8"))},
		"a node past the flavor": {change: func(j *jobBuilder) { j.Template.Spec.Template.Spec.NodeName = "a100-0" },
			want: "replicated job node names node a100-0 itself, whatever flavor the job was admitted to"},
		"another runtime class": {change: func(j *jobBuilder) { j.Template.Spec.Template.Spec.RuntimeClassName = new("kata") }, want: "replicated job node has another runtime class"},
		// It may have been admitted by a release that took it.
		"pods that say they are another JobSet's": {change: func(j *jobBuilder) {
			j.Template.Spec.Template.Labels = map[string]string{jobsetapi.JobSetNameKey: "other"}
		}, starts: "replicated job node has label jobset.sigs.k8s.io/jobset-name, which tells whose pods they are"},
		"pods of a selector": {change: func(j *jobBuilder) { j.Template.Spec.ManualSelector = new(true) }, starts: "replicated job node selects its pods by a selector of its own"},
		"pods of a selector that Kubernetes fills": {change: func(j *jobBuilder) { j.Template.Spec.Selector = &metav1.LabelSelector{} },
			starts: "replicated job node selects its pods by a selector of its own"},
		"less is no excess":                   {change: kit.All(pods(1, 2), asks(kit.GPUResources("4")))},
		"as many pods in another arrangement": {change: pods(1, 4)},
		"another replicated job":              {extra: []*jobBuilder{makeJob("extra")}, want: "replicated job extra is not among those that the job was admitted with"},
		"more Jobs":                           {change: pods(3, 2), want: "replicated job node has 6 pods instead of 4"},
		"more pods than 32 bits count":        {change: pods(1<<16, 1<<16), want: "replicated job node has 4294967296 pods instead of 4"},
		"more pods per Job":                   {change: pods(2, 3), want: "replicated job node has 6 pods instead of 4"},
		"more GPUs per pod":                   {change: asks(limits("nvidia.com/gpu", "9")), want: "replicated job node asks for 9 of nvidia.com/gpu per pod instead of 8"},
		"a resource that nothing was charged for": {change: asks(corev1.ResourceRequirements{Requests: kit.Amounts("example.com/nic", "1")}),
			want: "replicated job node asks for 1 of example.com/nic per pod instead of 0"},
		"a limit of the pod stands for a request": {change: func(j *jobBuilder) { j.Template.Spec.Template.Spec.Resources = new(limits("memory", "64Gi")) },
			want: "replicated job node asks for 64Gi of memory per pod instead of 0"},
		"a Job that was scaled": {children: []batchv1.Job{child(2), child(3)}, want: "replicated job node has child Jobs with 5 pods instead of 4"},
		"Jobs that were scaled beyond counting": {children: []batchv1.Job{child(math.MaxInt32), child(math.MaxInt32)},
			want: "replicated job node has child Jobs with 4294967294 pods instead of 4"},
		"a Job that has succeeded gave its quota back": {children: []batchv1.Job{child(2, kit.Completed), child(2)}, reclaimed: 2},
		"the Jobs of another replicated job are not its own": {children: []batchv1.Job{child(2), child(2), child(2, func(c *batchv1.Job) {
			c.Labels = map[string]string{jobsetapi.ReplicatedJobNameKey: "other"}
		})}},
		"a Job runs again whose quota was given back": {children: []batchv1.Job{child(2), child(2)}, reclaimed: 2,
			want: "replicated job node runs 2 pods again whose quota was given back when they had succeeded"},
	}, func(t *testing.T, tc row) {
		js := jobSet(append(tc.extra, kit.With(job(), tc.change))...)
		reclaimed := []kueue.ReclaimablePod{{Name: "other", Count: 4}, {Name: "node", Count: tc.reclaimed}}
		expect.Same(t, "Unexpected Excess", tc.want, Excess(js, tc.children, admitted, reclaimed))
		expect.Same(t, "Unexpected Unstartable", cmp.Or(tc.starts, tc.want), Unstartable(js, tc.children, admitted, reclaimed))
	})
}

// A quantity like 1.5Gi is kept behind a pointer, and what is compared may be a cache's.
func TestRequestsOfLeavesTheSpecAsItIs(t *testing.T) {
	memory := resource.MustParse("1.5Gi")
	spec := &corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: memory}},
		Overhead:  corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	expect.Same(t, "The second time it asks for something else", requestsOf(spec)[corev1.ResourceMemory], requestsOf(spec)[corev1.ResourceMemory])
	expect.Same(t, "The spec asks for something else by now", resource.MustParse("1.5Gi"), spec.Resources.Requests[corev1.ResourceMemory])
}

func TestExcessOfClaims(t *testing.T) {
	gpu, nic := corev1.PodResourceClaim{Name: "gpu"}, corev1.PodResourceClaim{Name: "nic"}
	type row struct {
		has, admitted []corev1.PodResourceClaim
		want          string
	}
	expect.Rows(t, map[string]row{
		"the same":  {has: []corev1.PodResourceClaim{gpu}, admitted: []corev1.PodResourceClaim{gpu}},
		"fewer":     {admitted: []corev1.PodResourceClaim{gpu}},
		"others":    {has: []corev1.PodResourceClaim{nic}, admitted: []corev1.PodResourceClaim{gpu}, want: "replicated job node has other resource claims"},
		"one more":  {has: []corev1.PodResourceClaim{gpu, nic}, admitted: []corev1.PodResourceClaim{gpu}, want: "replicated job node has other resource claims"},
		"none":      {},
		"the first": {has: []corev1.PodResourceClaim{gpu}, want: "replicated job node has other resource claims"},
	}, func(t *testing.T, tc row) {
		js, podSets := replicated("node", 1, nil, nil), []kueue.PodSet{{Name: "node", Count: 1}}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.ResourceClaims, podSets[0].Template.Spec.ResourceClaims = tc.has, tc.admitted
		expect.Same(t, "Excess", tc.want, Excess(js, nil, podSets, nil))
	})
}

func TestJobEnded(t *testing.T) {
	ended := func(c batchv1.JobCondition) bool {
		return JobEnded(&batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{c}}})
	}
	expect.Answers(t, ended, map[string]expect.Row[batchv1.JobCondition, bool]{
		"complete":      {In: batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}, Want: true},
		"failed":        {In: batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}, Want: true},
		"not failed":    {In: batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}},
		"not complete":  {In: batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionFalse}},
		"suspended":     {In: batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}},
		"about to fail": {In: batchv1.JobCondition{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}},
	})
}
