// SPDX-License-Identifier: Apache-2.0

package build

// Kubernetes is a minor version of the control plane. Its release is named in the go.mod below
// Dir, and nowhere else.
type Kubernetes struct {
	// Name is what people call it, its minor version.
	Name string
	// Dir holds the go.mod that its components are built with.
	Dir string
}

// KubernetesVersions are those that the cluster can run. The first is the one that Kueue is built
// with, so it comes from the same go.mod as Kueue.
var KubernetesVersions = []Kubernetes{
	{Name: "1.36", Dir: ControlPlaneDir},
	{Name: "1.37", Dir: ControlPlaneDir + "/kubernetes-1.37"},
}

// DefaultKubernetes is the one that Kueue is built with.
func DefaultKubernetes() Kubernetes { return KubernetesVersions[0] }

func (k Kubernetes) name() string { return k.Name }

// MarshalText writes the name, which is all that outlives the launcher.
func (k Kubernetes) MarshalText() ([]byte, error) { return []byte(k.Name), nil }

// UnmarshalText finds the version with that name.
func (k *Kubernetes) UnmarshalText(name []byte) error {
	return find("KUBERNETES", string(name), KubernetesVersions, k)
}

// Binary is the file name of a component of this version. That of the default has the
// component's own name.
func (k Kubernetes) Binary(component string) string {
	if k == DefaultKubernetes() {
		return component
	}
	return component + "-" + k.Name
}
