// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// kept are the forecasts that were made, by what they are of: a run of hours that was stopped goes on with them.
type kept struct {
	path string
	made map[string]forecasted
}

// openKept reads those of an earlier run; without a path none are kept.
func openKept(path string) (*kept, error) {
	k := &kept{path: path, made: map[string]forecasted{}}
	data, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return k, os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &k.made); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// forecast returns the one that was made, or makes it.
func (k *kept) forecast(of string, do func() (forecasted, error)) (forecasted, error) {
	if f, found := k.made[of]; found {
		return f, nil
	}
	f, err := do()
	if err != nil || k.path == "" {
		return f, err
	}
	k.made[of] = f
	data, err := json.Marshal(k.made)
	// Who is killed while writing leaves the file as it was.
	return f, errors.Join(err, os.WriteFile(k.path+".new", data, 0o644), os.Rename(k.path+".new", k.path))
}

// done deletes them: the next run starts from scratch.
func (k *kept) done() error {
	if k.path == "" || len(k.made) == 0 {
		return nil
	}
	return os.Remove(k.path)
}
