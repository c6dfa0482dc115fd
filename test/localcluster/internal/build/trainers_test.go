// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

func TestOnlyTheChosenTrainerIsBuilt(t *testing.T) {
	for _, trainer := range Trainers {
		var dirs []string
		for _, bin := range All(DefaultKubernetes(), trainer) {
			dirs = append(dirs, bin.Dir)
		}
		slices.Sort(dirs)
		want := []string{".", ControlPlaneDir, trainer.Dir, trainer.JobSetDir}
		slices.Sort(want)
		if got, want := slices.Compact(dirs), slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("a control plane with Trainer %s is built in %v, want %v", trainer.Name, got, want)
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
