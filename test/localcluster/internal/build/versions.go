// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
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
	{Name: "1.34", Dir: ControlPlaneDir + "/kubernetes-1.34"},
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

// Trainer is a generation of Trainer with the JobSet that goes with it. Their releases
// are named in the go.mod files below, and nowhere else.
type Trainer struct {
	// Name is what people call it, its minor version.
	Name string
	// Dir and JobSetDir hold the go.mod files that Trainer and JobSet are built with. They
	// differ where no set of Kubernetes libraries suits both.
	Dir       string
	JobSetDir string
}

// Trainers are those that the cluster can run, oldest first. The newest is the one that
// Kueue is built with, so it comes from the same go.mod as Kueue.
var Trainers = []Trainer{
	{Name: "2.1", Dir: ControlPlaneDir + "/trainer-2.1", JobSetDir: ControlPlaneDir + "/trainer-2.1"},
	{Name: "2.2", Dir: ControlPlaneDir + "/trainer-2.2", JobSetDir: ControlPlaneDir + "/jobset-0.11"},
	{Name: "2.3", Dir: ControlPlaneDir, JobSetDir: ControlPlaneDir},
}

// DefaultTrainer is the newest.
func DefaultTrainer() Trainer { return Trainers[len(Trainers)-1] }

func (t Trainer) name() string { return t.Name }

// MarshalText writes the name, which is all that outlives the launcher.
func (t Trainer) MarshalText() ([]byte, error) { return []byte(t.Name), nil }

// UnmarshalText finds the generation with that name.
func (t *Trainer) UnmarshalText(name []byte) error { return find("TRAINER", string(name), Trainers, t) }

// Compare is negative when t is older than other.
func (t Trainer) Compare(other Trainer) int {
	return cmp.Compare(slices.Index(Trainers, t), slices.Index(Trainers, other))
}

// named is what people choose by its name.
type named interface{ name() string }

// Names are the names of all that can be chosen, in their order.
func Names[T named](all []T) string {
	names := make([]string, 0, len(all))
	for _, one := range all {
		names = append(names, one.name())
	}
	return strings.Join(names, ", ")
}

// find looks for the value of a variable.
func find[T named](variable, name string, all []T, found *T) error {
	i := slices.IndexFunc(all, func(one T) bool { return one.name() == name })
	if i < 0 {
		return fmt.Errorf("%s=%s: must be one of %s", variable, name, Names(all))
	}
	*found = all[i]
	return nil
}
