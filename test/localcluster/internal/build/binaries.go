// SPDX-License-Identifier: Apache-2.0

// Package build makes the binaries of a local cluster from Go modules, each at the
// version that a go.mod names, and only when it has to.
package build

import (
	"fmt"
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
	// Module is the path of Package's module. Empty is the repository's own, which is built every time.
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

// All are the binaries of a control plane of that version with that Trainer, and kubectl of the default version.
func All(kubernetes, trainer string) []Binary {
	trainerDir, jobSetDir := trainerDirs(trainer)
	return []Binary{
		{Name: "etcd", Dir: ControlPlaneDir, Module: "go.etcd.io/etcd/server/v3", Package: "go.etcd.io/etcd/server/v3"},
		ofKubernetes("kube-apiserver", kubernetes),
		ofKubernetes("kube-controller-manager", kubernetes),
		ofKubernetes("kube-scheduler", kubernetes),
		ofKubernetes("kubectl", DefaultKubernetes),
		{Name: "kwok", Dir: ControlPlaneDir, Module: "sigs.k8s.io/kwok", Package: "sigs.k8s.io/kwok/cmd/kwok"},
		{Name: Program(JobSetManager, kubernetes, trainer), Dir: jobSetDir, Module: JobSetModule, Package: JobSetModule,
			VersionVars: gitVersion(JobSetModule + "/pkg/version.GitVersion")},
		{Name: Program(TrainerManager, kubernetes, trainer), Dir: trainerDir, Module: TrainerModule, Package: TrainerModule + "/cmd/trainer-controller-manager"},
		{Name: "kueue", Dir: ControlPlaneDir, Module: KueueModule, Package: KueueModule + "/cmd/kueue",
			VersionVars: gitVersion(KueueModule + "/pkg/version.GitVersion")},
		{Name: KueueTrainer, Dir: ".", Package: "./cmd/kueue-trainer"},
		{Name: Plugin, Dir: ".", Package: "./cmd/kubectl-trainjob"},
	}
}

func ofKubernetes(name, version string) Binary {
	return Binary{Name: Program(name, version, ""), Dir: kubernetesDir(version), Module: "k8s.io/kubernetes",
		Package: "k8s.io/kubernetes/cmd/" + name, VersionVars: componentVersion}
}

// Program is the file name of a component's binary, for the Trainer or, but for the default one, the version that it is of.
func Program(component, kubernetes, trainer string) string {
	switch {
	case component == JobSetManager || component == TrainerManager:
		return component + "-" + trainer
	case strings.HasPrefix(component, "kube-") && kubernetes != DefaultKubernetes:
		return component + "-" + kubernetes
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

// DefaultKubernetes is the minor version, and DefaultTrainer the generation, that Kueue's own go.mod has.
const (
	DefaultKubernetes = "1.36"
	DefaultTrainer    = "2.3"
)

// KubernetesVersions are the minor versions of the control plane that the cluster can run, and Trainers the generations
// of Trainer, oldest first, each with the JobSet that goes with it. Their releases are named in the go.mod files of the
// directories below, and nowhere else.
var (
	KubernetesVersions = []string{DefaultKubernetes, "1.34", "1.37"}
	Trainers           = []string{"2.1", "2.2", DefaultTrainer}
)

func kubernetesDir(version string) string {
	if version == DefaultKubernetes {
		return ControlPlaneDir
	}
	return ControlPlaneDir + "/kubernetes-" + version
}

// trainerDirs hold the go.mod files of Trainer and JobSet, two where no set of Kubernetes libraries suits both.
func trainerDirs(generation string) (trainer, jobSet string) {
	trainer = ControlPlaneDir + "/trainer-" + generation
	switch generation {
	case DefaultTrainer:
		return ControlPlaneDir, ControlPlaneDir
	case "2.2":
		return trainer, ControlPlaneDir + "/jobset-0.11"
	}
	return trainer, trainer
}
