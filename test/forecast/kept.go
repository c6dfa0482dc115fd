// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// kept are the forecasts that were made, by what they are of: a run of hours that was stopped goes on with them.
type kept struct {
	path string
	made map[string]forecasted
}

// openKept reads those of an earlier run; without a path none are kept.
func openKept(path string) *kept {
	k := &kept{path: path, made: map[string]forecasted{}}
	data, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		attempt.Succeed(os.MkdirAll(filepath.Dir(path), 0o755))
		return k
	}
	attempt.Succeed(err)
	attempt.Succeed(json.Unmarshal(data, &k.made), "%s", path)
	return k
}

func (k *kept) forecast(of string, do func() forecasted) forecasted {
	if f, found := k.made[of]; found {
		return f
	}
	f := do()
	if k.path == "" {
		return f
	}
	k.made[of] = f
	// Who is killed while writing leaves the file as it was.
	attempt.Succeed(os.WriteFile(k.path+".new", attempt.Must(json.Marshal(k.made)), 0o644))
	attempt.Succeed(os.Rename(k.path+".new", k.path))
	return f
}

// done deletes them: the next run starts from scratch.
func (k *kept) done() error {
	if k.path == "" || len(k.made) == 0 {
		return nil
	}
	return os.Remove(k.path)
}
