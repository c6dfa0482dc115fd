// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"slices"
	"strings"
)

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

// FindKubernetes returns the version with that name.
func FindKubernetes(name string) (Kubernetes, error) {
	i := slices.IndexFunc(KubernetesVersions, func(k Kubernetes) bool { return k.Name == name })
	if i < 0 {
		return Kubernetes{}, fmt.Errorf("KUBERNETES=%s: must be one of %s", name, strings.Join(KubernetesNames(), ", "))
	}
	return KubernetesVersions[i], nil
}

// KubernetesNames are the names of all versions.
func KubernetesNames() []string {
	names := make([]string, 0, len(KubernetesVersions))
	for _, k := range KubernetesVersions {
		names = append(names, k.Name)
	}
	return names
}

// MarshalText writes the name, which is all that outlives the launcher.
func (k Kubernetes) MarshalText() ([]byte, error) { return []byte(k.Name), nil }

// UnmarshalText is the inverse of MarshalText.
func (k *Kubernetes) UnmarshalText(name []byte) (err error) {
	*k, err = FindKubernetes(string(name))
	return err
}

// Binary is the file name of a component of this version. That of the default has the
// component's own name.
func (k Kubernetes) Binary(component string) string {
	if k == DefaultKubernetes() {
		return component
	}
	return component + "-" + k.Name
}
