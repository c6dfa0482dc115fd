// SPDX-License-Identifier: Apache-2.0

// Package build makes the binaries of a local cluster from Go modules, each at the
// version that a go.mod names, and only when it has to.
package build

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ControlPlaneDir holds the go.mod with everything but kueue-trainer, seen from the repository's root.
const ControlPlaneDir = "test/localcluster"

// Modules whose source holds manifests and configuration as well.
const (
	JobSetModule  = "sigs.k8s.io/jobset"
	TrainerModule = "github.com/kubeflow/trainer/v2"
	KueueModule   = "sigs.k8s.io/kueue"
)

// AutoscalerModule has the API by which Kueue asks an autoscaler for nodes.
const AutoscalerModule = "k8s.io/autoscaler/cluster-autoscaler/apis"

// Binary is one program and where it comes from.
type Binary struct {
	Name string
	// Dir holds the go.mod to build with, seen from the repository's root.
	Dir string
	// Module is the path of the module that Package belongs to. Empty means it is
	// the repository's own, which is built every time.
	Module      string
	Package     string
	VersionVars func(version string) []string
}

// Names of programs that others refer to.
const (
	KueueTrainer = "kueue-trainer"
	Plugin       = "kubectl-trainjob"
	// TrainerManager and JobSetManager are programs with a binary per generation of Trainer.
	TrainerManager = "trainer"
	JobSetManager  = "jobset"
)

// All are the binaries of a control plane of that version with that Trainer, in the order in
// which they are built. People's kubectl is that of the default version.
func All(k Kubernetes, t Trainer) []Binary {
	return []Binary{
		{Name: "etcd", Dir: ControlPlaneDir, Module: "go.etcd.io/etcd/server/v3", Package: "go.etcd.io/etcd/server/v3"},
		k.binary("kube-apiserver"),
		k.binary("kube-controller-manager"),
		k.binary("kube-scheduler"),
		DefaultKubernetes().binary("kubectl"),
		{Name: "kwok", Dir: ControlPlaneDir, Module: "sigs.k8s.io/kwok", Package: "sigs.k8s.io/kwok/cmd/kwok"},
		{Name: Program(JobSetManager, k, t), Dir: t.JobSetDir, Module: JobSetModule, Package: JobSetModule,
			VersionVars: gitVersion(JobSetModule + "/pkg/version.GitVersion")},
		{Name: Program(TrainerManager, k, t), Dir: t.Dir, Module: TrainerModule, Package: TrainerModule + "/cmd/trainer-controller-manager"},
		{Name: "kueue", Dir: ControlPlaneDir, Module: KueueModule, Package: KueueModule + "/cmd/kueue",
			VersionVars: gitVersion(KueueModule + "/pkg/version.GitVersion")},
		{Name: KueueTrainer, Dir: ".", Package: "./cmd/kueue-trainer"},
		{Name: Plugin, Dir: ".", Package: "./cmd/kubectl-trainjob"},
	}
}

func (k Kubernetes) binary(name string) Binary {
	return Binary{Name: Program(name, k, Trainer{}), Dir: k.Dir, Module: "k8s.io/kubernetes",
		Package: "k8s.io/kubernetes/cmd/" + name, VersionVars: componentVersion}
}

// Program is the file name of a component's binary. Each generation of Trainer has its own managers,
// and each version of the control plane its own components, but for the default version.
func Program(component string, k Kubernetes, t Trainer) string {
	switch {
	case component == JobSetManager || component == TrainerManager:
		return component + "-" + t.Name
	case strings.HasPrefix(component, "kube-") && k != DefaultKubernetes():
		return component + "-" + k.Name
	}
	return component
}

// componentVersion sets what Kubernetes reports as its version; Kueue ends when it cannot parse it.
func componentVersion(version string) []string {
	const pkg = "k8s.io/component-base/version"
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return []string{
		fmt.Sprintf("-X %s.gitVersion=%s", pkg, version),
		fmt.Sprintf("-X %s.gitMajor=%s", pkg, parts[0]),
		fmt.Sprintf("-X %s.gitMinor=%s", pkg, parts[1]),
		fmt.Sprintf("-X %s.gitTreeState=clean", pkg),
	}
}

func gitVersion(variable string) func(string) []string {
	return func(version string) []string { return []string{"-X " + variable + "=" + version} }
}

// Kubernetes is a minor version of the control plane. Its release is named in the go.mod below Dir, and nowhere else.
type Kubernetes struct {
	// Name is what people call it, its minor version.
	Name string
	Dir  string
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
func (k Kubernetes) name() string   { return k.Name }

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
func DefaultTrainer() Trainer  { return Trainers[len(Trainers)-1] }
func (t Trainer) name() string { return t.Name }

// MarshalText writes the name, which is all that outlives the launcher.
func (t Trainer) MarshalText() ([]byte, error) { return []byte(t.Name), nil }

// UnmarshalText finds the generation with that name.
func (t *Trainer) UnmarshalText(name []byte) error { return find("TRAINER", string(name), Trainers, t) }

// Compare is negative when t is older than other.
func (t Trainer) Compare(other Trainer) int {
	return cmp.Compare(slices.Index(Trainers, t), slices.Index(Trainers, other))
}

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
