// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
