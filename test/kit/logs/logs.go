// SPDX-License-Identifier: Apache-2.0

// Package logs reads what a local control plane writes into its logs from now on, and counts API requests
// by its audit log.
package logs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Log is a log that is being written.
type Log struct {
	path   string
	offset int64
}

// Open returns a log from its present end on.
func Open(path string) (*Log, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &Log{path: path, offset: info.Size()}, nil
}

// Lines hands the lines since the last call to take. One that is being written is for the next time.
func (l *Log) Lines(take func([]byte) error) error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Seek(l.offset, io.SeekStart)
	for reader := bufio.NewReaderSize(f, 1<<20); err == nil; {
		var line []byte
		if line, err = reader.ReadBytes('\n'); err == nil {
			l.offset += int64(len(line))
			err = take(line)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("log %s: %w", l.path, err)
}
