// SPDX-License-Identifier: Apache-2.0

package build

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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

// FindTrainer returns the generation with that name.
func FindTrainer(name string) (Trainer, error) {
	i := slices.IndexFunc(Trainers, func(t Trainer) bool { return t.Name == name })
	if i < 0 {
		return Trainer{}, fmt.Errorf("TRAINER=%s: must be one of %s", name, strings.Join(TrainerNames(), ", "))
	}
	return Trainers[i], nil
}

// TrainerNames are the names of all generations, oldest first.
func TrainerNames() []string {
	names := make([]string, 0, len(Trainers))
	for _, t := range Trainers {
		names = append(names, t.Name)
	}
	return names
}

// MarshalText writes the name, which is all that outlives the launcher.
func (t Trainer) MarshalText() ([]byte, error) { return []byte(t.Name), nil }

// UnmarshalText is the inverse of MarshalText.
func (t *Trainer) UnmarshalText(name []byte) (err error) {
	*t, err = FindTrainer(string(name))
	return err
}

// Compare is negative when t is older than other.
func (t Trainer) Compare(other Trainer) int {
	return cmp.Compare(slices.Index(Trainers, t), slices.Index(Trainers, other))
}

// Binary is the file name of a program that each generation has its own of.
func (t Trainer) Binary(program string) string { return program + "-" + t.Name }
