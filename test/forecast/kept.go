// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// kept are the forecasts that were made, a line of JSON each: a run of hours that was stopped goes on with them.
type kept struct {
	file *os.File
	made map[string]forecasted
}

// line is a forecast with what it is of.
type line struct {
	Of string
	forecasted
}

// openKept reads those of an earlier run; without a path none are kept.
func openKept(path string) (*kept, error) {
	k := &kept{made: map[string]forecasted{}}
	if path == "" {
		return k, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	var err error
	if k.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	whole := int64(0)
	for lines := json.NewDecoder(k.file); ; whole = lines.InputOffset() {
		var l line
		if err := lines.Decode(&l); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // The last line may be cut off.
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		k.made[l.Of] = l.forecasted
	}
	if err := k.file.Truncate(whole); err != nil {
		return nil, err
	}
	_, err = k.file.Seek(whole, io.SeekStart)
	return k, err
}

// forecast returns the one that was made, or makes it.
func (k *kept) forecast(of string, do func() (forecasted, error)) (forecasted, error) {
	if f, found := k.made[of]; found {
		return f, nil
	}
	f, err := do()
	if err != nil || k.file == nil {
		return f, err
	}
	return f, json.NewEncoder(k.file).Encode(line{of, f})
}

// done deletes them: the next run starts from scratch.
func (k *kept) done() error {
	if k.file == nil {
		return nil
	}
	return errors.Join(k.file.Close(), os.Remove(k.file.Name()))
}
