// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Row is one of a table whose rows say no more than what is given and what a test wants of it.
type Row[In, Want any] struct {
	In   In
	Want Want
}

// Rows runs a test on each row of a table.
func Rows[T any](t *testing.T, rows map[string]T, test func(t *testing.T, row T)) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { test(t, row) })
	}
}

// Answers compares what a function returns for each row with what the row wants.
func Answers[In, Want any](t *testing.T, of func(In) Want, rows map[string]Row[In, Want], options ...cmp.Option) {
	t.Helper()
	Rows(t, rows, func(t *testing.T, row Row[In, Want]) {
		t.Helper()
		Same(t, "Unexpected answer", row.Want, of(row.In), options...)
	})
}
