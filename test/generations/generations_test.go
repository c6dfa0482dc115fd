// SPDX-License-Identifier: Apache-2.0

// Package generations asks releases of Trainer whether this repository is right about them.
package generations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// question and answer are those of package oracle, which is in a module of its own.
type question struct {
	Runtime  any  `json:"runtime"`
	Job      any  `json:"job"`
	Validate bool `json:"validate,omitempty"`
}

type answer struct {
	JobSet  json.RawMessage `json:"jobSet"`
	Errors  []string        `json:"errors"`
	Failure string          `json:"failure"`
}

// refusals are what the webhook refuses a TrainJob for.
func (a answer) refusals() []string {
	if a.Failure != "" {
		return append(a.Errors, a.Failure)
	}
	return a.Errors
}

// modules are those that pin the releases.
var modules = map[trainjob.TrainerVersion]string{
	trainjob.Trainer21: "trainer21", trainjob.Trainer22: "trainer22", trainjob.Trainer23: "trainer23",
}

var binaries string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "generations")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binaries = dir
		for _, module := range modules {
			build := exec.Command("go", "build", "-C", module, "-o", filepath.Join(dir, module), ".")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "Building %s: %v\n%s", module, err, out)
				return 1
			}
		}
		return m.Run()
	}())
}

// ask returns the answers of one release, in the order of the questions.
func ask(t *testing.T, generation trainjob.TrainerVersion, questions []question) []answer {
	t.Helper()
	answers := make([]answer, len(questions))
	var group errgroup.Group
	size := max(1, (len(questions)+runtime.NumCPU()-1)/runtime.NumCPU())
	for start := 0; start < len(questions); start += size {
		end := min(start+size, len(questions))
		group.Go(func() error { return fill(answers[start:end], modules[generation], questions[start:end]) })
	}
	expect.NoError(t, group.Wait())
	return answers
}

func fill(answers []answer, module string, questions []question) error {
	var in bytes.Buffer
	encoder := json.NewEncoder(&in)
	for _, q := range questions {
		if err := encoder.Encode(q); err != nil {
			return err
		}
	}
	cmd := exec.Command(filepath.Join(binaries, module))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	cmd.Env = append(os.Environ(), "GOGC=1000") // Most of an answer's time is garbage collection otherwise.
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for i := range answers {
		if err := decoder.Decode(&answers[i]); err != nil {
			return fmt.Errorf("reading answer %d of %d: %w", i, len(answers), err)
		}
	}
	return nil
}
