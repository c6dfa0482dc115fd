// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestFromJobSetCounts(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[*jobBuilder, int32]{
		"one pod where nothing is said":               {In: makeJob("node"), Want: 1},
		"parallelism":                                 {In: makeJob("node").pods(new(int32(4)), nil), Want: 4},
		"parallelism and as many completions":         {In: makeJob("node").pods(new(int32(4)), new(int32(4))), Want: 4},
		"never more at a time than completions":       {In: makeJob("node").pods(new(int32(4)), new(int32(3))), Want: 3},
		"more completions than run at a time":         {In: makeJob("node").pods(new(int32(4)), new(int32(9))), Want: 4},
		"completions without parallelism run by ones": {In: makeJob("node").pods(nil, new(int32(9))), Want: 1},
		"replicas multiply":                           {In: makeJob("node").replicas(3).pods(new(int32(4)), new(int32(2))), Want: 6},
		"no parallelism at all":                       {In: makeJob("node").replicas(3).pods(new(int32(0)), nil), Want: 0},
		"no replicas":                                 {In: makeJob("node").replicas(0).pods(new(int32(4)), nil), Want: 0},
	}, func(t *testing.T, tc expect.Row[*jobBuilder, int32]) {
		expect.Same(t, "Unexpected count", tc.Want, expect.Must(fromJobSet(jobSet(tc.In)))(t)[0].Count)
	})
}

func TestFromJobSetNamesAndOrder(t *testing.T) {
	podSets := expect.Must(fromJobSet(jobSet(makeJob("node"), makeJob("Launcher"), makeJob("a"))))(t)
	got := expect.Each(podSets, func(ps kueue.PodSet) kueue.PodSetReference { return ps.Name })
	expect.Same(t, "Unexpected PodSets", []kueue.PodSetReference{"node", "launcher", "a"}, got)
	expect.Same(t, "PodSets come out of no jobs", 0, len(expect.Must(fromJobSet(jobSet()))(t)))
}

func TestFromJobSetTolerations(t *testing.T) {
	spot := corev1.Toleration{Key: "spot", Value: "true"}
	expect.Rows(t, map[string]expect.Row[*jobBuilder, []corev1.Toleration]{
		"no GPUs, no tolerations":          {In: makeJob("node")},
		"no GPUs, the job's own":           {In: makeJob("node").tolerations(spot), Want: []corev1.Toleration{spot}},
		"another vendor's GPUs":            {In: makeJob("node").gpus("amd.com/gpu")},
		"GPUs":                             {In: makeJob("node").gpus("nvidia.com/gpu"), Want: []corev1.Toleration{exists("nvidia.com/gpu")}},
		"GPUs after the job's own":         {In: makeJob("node").gpus("nvidia.com/gpu").tolerations(spot), Want: []corev1.Toleration{spot, exists("nvidia.com/gpu")}},
		"GPUs that the job tolerates":      {In: makeJob("node").gpus("nvidia.com/gpu").tolerations(exists("nvidia.com/gpu"), spot), Want: []corev1.Toleration{exists("nvidia.com/gpu"), spot}},
		"MIG, the provider's key is there": {In: makeJob("node").gpus("nvidia.com/mig-1g.10gb").tolerations(exists("nvidia.com/gpu")), Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
	}, func(t *testing.T, tc expect.Row[*jobBuilder, []corev1.Toleration]) {
		js := jobSet(tc.In, makeJob("aside"))
		before := js.DeepCopy()
		podSets := expect.Must(fromJobSet(js))(t)
		expect.Same(t, "Unexpected tolerations", tc.Want, podSets[0].Template.Spec.Tolerations)
		expect.Same(t, "The PodSet beside it tolerates something", nil, podSets[1].Template.Spec.Tolerations)
		podSets[0].Template.Spec.Containers[0].Name = "changed"
		expect.Same(t, "The JobSet changed", before, js)
	})
}

func TestFromJobSetTopology(t *testing.T) {
	ranked := func(change func(*kueue.PodSetTopologyRequest)) *kueue.PodSetTopologyRequest {
		request := &kueue.PodSetTopologyRequest{
			PodIndexLabel:      new("batch.kubernetes.io/job-completion-index"),
			SubGroupIndexLabel: new("jobset.sigs.k8s.io/job-index"),
			SubGroupCount:      new(int32(2)),
		}
		change(request)
		return request
	}
	type row struct {
		off        bool
		key, value string
		want       *kueue.PodSetTopologyRequest
		wantInErr  []string
	}
	expect.Rows(t, map[string]row{
		"ranks only, as Kueue's own integrations give": {want: ranked(func(*kueue.PodSetTopologyRequest) {})},
		"required":  {key: kueue.PodSetRequiredTopologyAnnotation, value: "block", want: ranked(func(r *kueue.PodSetTopologyRequest) { r.Required = new("block") })},
		"preferred": {key: kueue.PodSetPreferredTopologyAnnotation, value: "rack", want: ranked(func(r *kueue.PodSetTopologyRequest) { r.Preferred = new("rack") })},
		"unconstrained": {key: kueue.PodSetUnconstrainedTopologyAnnotation, value: "true",
			want: ranked(func(r *kueue.PodSetTopologyRequest) { r.Unconstrained = new(true) })},
		"an annotation that cannot be read":                             {key: kueue.PodSetUnconstrainedTopologyAnnotation, value: "perhaps", wantInErr: []string{`"node"`, "perhaps"}},
		"with the gate off, none":                                       {off: true, key: kueue.PodSetRequiredTopologyAnnotation, value: "block"},
		"with the gate off, not even an annotation that cannot be read": {off: true, key: kueue.PodSetUnconstrainedTopologyAnnotation, value: "perhaps"},
	}, func(t *testing.T, tc row) {
		features.SetFeatureGateDuringTest(t, features.TopologyAwareScheduling, !tc.off)
		job := makeJob("node").replicas(2)
		if tc.key != "" {
			job.annotation(tc.key, tc.value)
		}
		podSets, err := fromJobSet(jobSet(makeJob("first"), job))
		if len(tc.wantInErr) > 0 {
			expect.ErrorWith(t, err, tc.wantInErr...)
			return
		}
		expect.NoError(t, err)
		expect.Same(t, "Unexpected topology request", tc.want, podSets[1].TopologyRequest)
	})
}

func TestUnionDoesNotWriteIntoItsFirstList(t *testing.T) {
	// Room at the end is where an append would write into the caller's array.
	have := append(make([]corev1.Toleration, 0, 4), exists("a"))
	expect.Same(t, "Unexpected tolerations", []corev1.Toleration{exists("a"), exists("b")}, union(have, []corev1.Toleration{exists("b")}))
	expect.That(t, have[:2][1] == (corev1.Toleration{}), "The array behind the first list was written to: %v", have[:2])
}

// jobBuilder builds a replicated job of one replica with one pod.
type jobBuilder struct{ jobsetapi.ReplicatedJob }

func makeJob(name string) *jobBuilder {
	b := &jobBuilder{jobsetapi.ReplicatedJob{Name: name, Replicas: 1}}
	b.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	return b
}

func (b *jobBuilder) replicas(n int32) *jobBuilder {
	b.Replicas = n
	return b
}

func (b *jobBuilder) pods(parallelism, completions *int32) *jobBuilder {
	b.Template.Spec.Parallelism, b.Template.Spec.Completions = parallelism, completions
	return b
}

func (b *jobBuilder) gpus(name corev1.ResourceName) *jobBuilder {
	b.Template.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("8")}
	return b
}

func (b *jobBuilder) tolerations(list ...corev1.Toleration) *jobBuilder {
	b.Template.Spec.Template.Spec.Tolerations = list
	return b
}

func (b *jobBuilder) annotation(key, value string) *jobBuilder {
	b.Template.Spec.Template.Annotations = map[string]string{key: value}
	return b
}

func (b *jobBuilder) dependsOn(name string, status jobsetapi.DependsOnStatus) *jobBuilder {
	b.DependsOn = append(b.DependsOn, jobsetapi.DependsOn{Name: name, Status: status})
	return b
}

func jobSet(jobs ...*jobBuilder) *jobsetapi.JobSet {
	all := expect.Each(jobs, func(b *jobBuilder) jobsetapi.ReplicatedJob { return b.ReplicatedJob })
	return &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: all}}
}

// status returns ready, succeeded and failed child Jobs of a replicated job.
func status(name string, ready, succeeded, failed int32) trainer.JobStatus {
	return trainer.JobStatus{Name: name, Ready: new(ready), Succeeded: new(succeeded), Failed: new(failed)}
}

func exists(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

func gates(names ...string) []corev1.PodSchedulingGate {
	return expect.Each(names, func(name string) corev1.PodSchedulingGate { return corev1.PodSchedulingGate{Name: name} })
}

func TestDefaultRequests(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"limits alone":                       {In: `containers: [{name: a, resources: {limits: {cpu: 4}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 4}}}]`},
		"of init containers":                 {In: `initContainers: [{name: a, resources: {limits: {cpu: 4}}}]`, Want: `initContainers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 4}}}]`},
		"a request of its own":               {In: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 1}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 1}}}]`},
		"no GPUs":                            {In: `containers: [{name: a, resources: {limits: {nvidia.com/gpu: 0, cpu: 1}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 1}, requests: {cpu: 1}}}]`},
		"a request of nothing below a limit": {In: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 0}}}]`, Want: `containers: [{name: a, resources: {limits: {cpu: 4}, requests: {cpu: 0}}}]`},
		"limits of the pod alone":            {In: `{containers: [{name: a}], resources: {limits: {cpu: 6}}}`, Want: `{containers: [{name: a}], resources: {limits: {cpu: 6}, requests: {cpu: 6}}}`},
		"limits of the pod beside requests":  {In: `{containers: [{name: a, resources: {requests: {cpu: 2, example.com/a: 1}}}, {name: b}], resources: {limits: {cpu: 6, memory: 1Gi}}}`, Want: `{containers: [{name: a, resources: {requests: {cpu: 2, example.com/a: 1}}}, {name: b}], resources: {limits: {memory: 1Gi}, requests: {memory: 1Gi}}}`},
		"a request of the pod beside others": {In: `{containers: [{name: a, resources: {requests: {cpu: 2}}}], resources: {limits: {cpu: 6}, requests: {cpu: 4}}}`, Want: `{containers: [{name: a, resources: {requests: {cpu: 2}}}], resources: {limits: {cpu: 6}, requests: {cpu: 4}}}`},
		"huge pages of the pod":              {In: `{containers: [{name: a, resources: {limits: {hugepages-2Mi: 2Mi}}}], resources: {limits: {hugepages-2Mi: 32Gi}}}`, Want: `{containers: [{name: a, resources: {limits: {hugepages-2Mi: 2Mi}, requests: {hugepages-2Mi: 2Mi}}}], resources: {limits: {hugepages-2Mi: 32Gi}, requests: {hugepages-2Mi: 32Gi}}}`},
		"requests of the pod alone":          {In: `{containers: [{name: a, resources: {requests: {memory: 1Gi}}}], resources: {requests: {cpu: 6}}}`, Want: `{containers: [{name: a, resources: {requests: {memory: 1Gi}}}], resources: {requests: {cpu: 6}}}`},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		pod := expect.FromYAML[corev1.PodSpec](t, tc.In)
		defaultRequests(&pod)
		expect.Same(t, "Unexpected pod", expect.FromYAML[corev1.PodSpec](t, tc.Want), pod, cmpopts.EquateEmpty())
	})
}

// Kueue charges for what stands in the PodSets alone.
func TestPodSetsRequestWhatPodsWill(t *testing.T) {
	job := makeJob("node").gpus("nvidia.com/gpu")
	js := jobSet(job)
	container := &js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]
	container.Resources.Requests = nil
	requests := expect.Must(fromJobSet(js))(t)[0].Template.Spec.Containers[0].Resources.Requests
	expect.That(t, len(container.Resources.Limits) > 0 && requests.Name("nvidia.com/gpu", "").Equal(container.Resources.Limits["nvidia.com/gpu"]), "It requests %v", requests)
	expect.That(t, container.Resources.Requests == nil, "The JobSet is changed")
}

// workloadCRD reads the CRD that Kueue installs, of the very version that this
// module is built with.
func workloadCRD(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	dir := expect.Must(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output())(t)
	data := expect.Must(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "components", "crd", "bases", "kueue.x-k8s.io_workloads.yaml")))(t)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	expect.NoError(t, yaml.Unmarshal(data, crd))
	return crd
}

func TestDefaultsApply(t *testing.T) {
	defaults, training := expect.Must(NewDefaults(workloadCRD(t), "v1beta2"))(t), expect.FromYAML[kueue.PodSet](t, trainingPodSet)
	of := func(initContainer, container corev1.Container) kueue.PodSet {
		spec := corev1.PodSpec{InitContainers: []corev1.Container{initContainer}, Containers: []corev1.Container{container}}
		return kueue.PodSet{Name: "node", Template: corev1.PodTemplateSpec{Spec: spec}}
	}
	listening := func(ports ...corev1.ContainerPort) corev1.Container { return corev1.Container{Ports: ports} }
	tcp := func(port int32) corev1.ContainerPort {
		return corev1.ContainerPort{ContainerPort: port, Protocol: "TCP"}
	}
	udp := corev1.ContainerPort{ContainerPort: 3, Protocol: corev1.ProtocolUDP}
	probed := func(grpc corev1.GRPCAction) corev1.Container {
		return corev1.Container{LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &grpc}}}
	}
	expect.Rows(t, map[string]expect.Row[kueue.PodSet, kueue.PodSet]{
		"nothing to default":    {In: kueue.PodSet{Name: "node", Count: 2}, Want: kueue.PodSet{Name: "node", Count: 2}},
		"a count of zero stays": {In: kueue.PodSet{Name: "node"}, Want: kueue.PodSet{Name: "node"}},
		"ports get a protocol, in every kind of container": {In: of(listening(corev1.ContainerPort{ContainerPort: 1}), listening(corev1.ContainerPort{ContainerPort: 2}, udp)),
			Want: of(listening(tcp(1)), listening(tcp(2), udp))},
		"probes over gRPC get a service": {In: of(corev1.Container{}, probed(corev1.GRPCAction{Port: 1})),
			Want: of(corev1.Container{}, probed(corev1.GRPCAction{Port: 1, Service: new("")}))},
		"metadata that the schema does not know goes": {In: kueue.PodSet{Name: "node", Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"}, GenerateName: "gone", UID: "gone",
		}}}, Want: kueue.PodSet{Name: "node", Template: template(map[string]string{"l": "v"}, map[string]string{"a": "v"}, nil, corev1.PodSpec{})}},
		"what a training pod has stays as it is": {In: training, Want: training},
	}, func(t *testing.T, tc expect.Row[kueue.PodSet, kueue.PodSet]) {
		given := tc.In.DeepCopy()
		// Number and order stay.
		got := expect.Must(defaults.Apply([]kueue.PodSet{{Name: "z"}, tc.In, {Name: "a"}}))(t)
		expect.Same(t, "Unexpected PodSets", []kueue.PodSet{{Name: "z"}, tc.Want, {Name: "a"}}, got)
		expect.Same(t, "The second time changes them", got, expect.Must(defaults.Apply(got))(t))
		expect.Same(t, "The given PodSet changed", *given, tc.In)
	})
}

// trainingPodSet has something of every kind that JSON could lose on its way: zeros
// behind pointers, amounts, ints or strings, 64 bits.
const trainingPodSet = `
name: node
count: 4
template:
  metadata: {labels: {empty: ""}}
  spec:
    nodeSelector: {pool: h100}
    terminationGracePeriodSeconds: 0
    tolerations: [{key: nvidia.com/gpu, operator: Exists}, {key: flaky, effect: NoExecute, tolerationSeconds: 9007199254740993}]
    securityContext: {runAsNonRoot: false, runAsUser: 0}
    volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]
    containers:
    - name: node
      image: torch
      command: [torchrun]
      args: [""]
      env: [{name: E}, {name: F, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
      resources: {requests: {cpu: 500m}, limits: {nvidia.com/gpu: 8}}
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
      readinessProbe: {tcpSocket: {port: 2222}}
topologyRequest: {required: block, subGroupCount: 1}
`

func TestNewDefaultsErrors(t *testing.T) {
	type row struct {
		version   string
		change    func(*apiextensionsv1.CustomResourceDefinitionVersion)
		wantInErr []string
	}
	expect.Rows(t, map[string]row{
		"an unknown version": {version: "v9", change: func(*apiextensionsv1.CustomResourceDefinitionVersion) {},
			wantInErr: []string{"workloads.kueue.x-k8s.io", "v9", "Kueue v0.19"}},
		"a version that is not served": {version: "v1beta2", change: func(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Served = false },
			wantInErr: []string{"v1beta2"}},
		"a version without a schema": {version: "v1beta2", change: func(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Schema = nil },
			wantInErr: []string{"v1beta2"}},
		"a schema without PodSets": {version: "v1beta2",
			change: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
				v.Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
			}, wantInErr: []string{"spec.podSets"}},
	}, func(t *testing.T, tc row) {
		crd := workloadCRD(t)
		for i := range crd.Spec.Versions {
			tc.change(&crd.Spec.Versions[i])
		}
		_, err := NewDefaults(crd, tc.version)
		expect.ErrorWith(t, err, tc.wantInErr...)
	})
}
