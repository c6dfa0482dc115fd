// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
)

func TestTrainersAreWhatTheirModulesRequire(t *testing.T) {
	for _, trainer := range Trainers {
		t.Run(trainer.Name, func(t *testing.T) {
			if version := required(t, trainer.Dir, TrainerModule); !strings.HasPrefix(version, "v"+trainer.Name+".") {
				t.Errorf("%s requires Trainer %s, not %s", trainer.Dir, version, trainer.Name)
			}
			library, program := required(t, trainer.Dir, JobSetModule), required(t, trainer.JobSetDir, JobSetModule)
			if library != program {
				t.Errorf("Trainer is built with JobSet %s and would run beside JobSet %s", library, program)
			}
		})
	}
}

func TestKubernetesVersionsAreWhatTheirModulesRequire(t *testing.T) {
	for _, k := range KubernetesVersions {
		if version := required(t, k.Dir, "k8s.io/kubernetes"); !strings.HasPrefix(version, "v"+k.Name+".") {
			t.Errorf("%s requires Kubernetes %s, not %s", k.Dir, version, k.Name)
		}
	}
}

func TestOnlyTheChosenVersionsAreBuilt(t *testing.T) {
	for _, k := range KubernetesVersions {
		for _, trainer := range Trainers {
			where := map[string]string{}
			for _, bin := range All(k, trainer) {
				where[bin.Name] = bin.Dir
			}
			want := map[string]string{
				"etcd": ControlPlaneDir, "kwok": ControlPlaneDir, "kueue": ControlPlaneDir, "kubectl": ControlPlaneDir, KueueTrainer: ".", Plugin: ".",
				"trainer-" + trainer.Name: trainer.Dir, "jobset-" + trainer.Name: trainer.JobSetDir,
			}
			for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
				if k != DefaultKubernetes() {
					component += "-" + k.Name
				}
				want[component] = k.Dir
			}
			if diff := cmp.Diff(want, where); diff != "" {
				t.Errorf("a control plane %s with Trainer %s (-want,+got):\n%s", k.Name, trainer.Name, diff)
			}
		}
	}
}

func TestWhatIsUnknownIsToldWithTheValues(t *testing.T) {
	for want, err := range map[string]error{
		"TRAINER=2.4: must be one of 2.1, 2.2, 2.3":        new(Trainer).UnmarshalText([]byte("2.4")),
		"KUBERNETES=1.35: must be one of 1.36, 1.34, 1.37": new(Kubernetes).UnmarshalText([]byte("1.35")),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestTrainerOutlivesTheLauncherAsItsName(t *testing.T) {
	for _, trainer := range Trainers {
		content, err := json.Marshal(trainer)
		if err != nil {
			t.Fatal(err)
		}
		var read Trainer
		if err := json.Unmarshal(content, &read); err != nil || read != trainer {
			t.Errorf("%s is read as %v, %v", content, read, err)
		}
	}
}

func TestTrainersAreInTheirOrder(t *testing.T) {
	for i, trainer := range Trainers {
		for j, other := range Trainers {
			if got := trainer.Compare(other); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("Compare of %s with %s returned %d", trainer.Name, other.Name, got)
			}
		}
	}
}

func required(t *testing.T, dir, module string) string {
	t.Helper()
	path := filepath.Join("../../../..", dir, "go.mod")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.ParseLax(path, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, require := range file.Require {
		if require.Mod.Path == module {
			return require.Mod.Version
		}
	}
	t.Fatalf("%s does not require %s", path, module)
	return ""
}
