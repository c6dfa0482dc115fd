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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	defaults := expect.Must(NewDefaults(workloadCRD(t), "v1beta2"))(t)
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
	for name, tc := range map[string]struct{ podSet, want kueue.PodSet }{
		"nothing to default":    {podSet: kueue.PodSet{Name: "node", Count: 2}, want: kueue.PodSet{Name: "node", Count: 2}},
		"a count of zero stays": {podSet: kueue.PodSet{Name: "node"}, want: kueue.PodSet{Name: "node"}},
		"ports get a protocol, in every kind of container": {podSet: of(listening(corev1.ContainerPort{ContainerPort: 1}), listening(corev1.ContainerPort{ContainerPort: 2}, udp)),
			want: of(listening(tcp(1)), listening(tcp(2), udp))},
		"probes over gRPC get a service": {podSet: of(corev1.Container{}, probed(corev1.GRPCAction{Port: 1})),
			want: of(corev1.Container{}, probed(corev1.GRPCAction{Port: 1, Service: new("")}))},
		"metadata that the schema does not know goes": {podSet: kueue.PodSet{Name: "node", Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"}, GenerateName: "gone", UID: "gone",
		}}}, want: kueue.PodSet{Name: "node", Template: template(map[string]string{"l": "v"}, map[string]string{"a": "v"}, nil, corev1.PodSpec{})}},
		"what a training pod has stays as it is": {podSet: trainingPodSet(), want: trainingPodSet()},
	} {
		t.Run(name, func(t *testing.T) {
			given := tc.podSet.DeepCopy()
			// Number and order stay.
			got := expect.Must(defaults.Apply([]kueue.PodSet{{Name: "z"}, tc.podSet, {Name: "a"}}))(t)
			expect.Same(t, "Unexpected PodSets", []kueue.PodSet{{Name: "z"}, tc.want, {Name: "a"}}, got)
			expect.Same(t, "The second time changes them", got, expect.Must(defaults.Apply(got))(t))
			expect.Same(t, "The given PodSet changed", *given, tc.podSet)
		})
	}
}

// trainingPodSet has something of every kind that JSON could lose on its way: zeros
// behind pointers, amounts, ints or strings, 64 bits.
func trainingPodSet() kueue.PodSet {
	return kueue.PodSet{
		Name: "node", Count: 4,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"empty": ""}},
			Spec: corev1.PodSpec{
				NodeSelector:                  map[string]string{"pool": "h100"},
				TerminationGracePeriodSeconds: new(int64(0)),
				Tolerations: []corev1.Toleration{
					exists("nvidia.com/gpu"), {Key: "flaky", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(9007199254740993))},
				},
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(false), RunAsUser: new(int64(0))},
				Volumes: []corev1.Volume{
					{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Gi"))}}},
				},
				Containers: []corev1.Container{{
					Name: "node", Image: "torch", Command: []string{"torchrun"}, Args: []string{""},
					Env: []corev1.EnvVar{{Name: "E"}, {Name: "F", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}, Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
					},
					VolumeMounts:   []corev1.VolumeMount{{Name: "shm", MountPath: "/dev/shm"}},
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(2222)}}},
				}},
			},
		},
		TopologyRequest: &kueue.PodSetTopologyRequest{Required: new("block"), SubGroupCount: new(int32(1))},
	}
}

func TestNewDefaultsErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		version   string
		change    func(*apiextensionsv1.CustomResourceDefinitionVersion)
		wantInErr []string
	}{
		"an unknown version": {version: "v9", change: func(*apiextensionsv1.CustomResourceDefinitionVersion) {},
			wantInErr: []string{"workloads.kueue.x-k8s.io", "v9", "Kueue v0.19"}},
		"a version without a schema": {version: "v1beta2", change: func(v *apiextensionsv1.CustomResourceDefinitionVersion) { v.Schema = nil },
			wantInErr: []string{"v1beta2"}},
		"a schema without PodSets": {version: "v1beta2",
			change: func(v *apiextensionsv1.CustomResourceDefinitionVersion) {
				v.Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
			}, wantInErr: []string{"spec.podSets"}},
	} {
		t.Run(name, func(t *testing.T) {
			crd := workloadCRD(t)
			for i := range crd.Spec.Versions {
				tc.change(&crd.Spec.Versions[i])
			}
			_, err := NewDefaults(crd, tc.version)
			expect.ErrorWith(t, err, tc.wantInErr...)
		})
	}
}
