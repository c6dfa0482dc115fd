// SPDX-License-Identifier: Apache-2.0

// Package expect says in one line what unit tests say most often. It imports nothing of this
// repository, so that the tests inside of any package can use it.
package expect

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Same fails a test, which goes on, with that sentence and the difference between what it wants and what it got.
func Same[T any](t testing.TB, sentence string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want,+got):\n%s", sentence, diff)
	}
}

// That fails a test, which goes on, with a complaint where something is not so.
func That(t testing.TB, so bool, complaint string, args ...any) {
	t.Helper()
	if !so {
		t.Errorf(complaint, args...)
	}
}

// Need ends a test that cannot go on, with a complaint, where something is not so.
func Need(t testing.TB, so bool, complaint string, args ...any) {
	t.Helper()
	if !so {
		t.Fatalf(complaint, args...)
	}
}

// NoError ends a test that cannot go on after an error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must ends a test where a call returned an error, and returns its value otherwise. It is written
// Must(call())(t), as Go hands two results on to nothing but a function of just these.
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		NoError(t, err)
		return value
	}
}

// ErrorWith ends a test that needs an error, and fails it for each part that the error does not have.
func ErrorWith(t testing.TB, err error, parts ...string) {
	t.Helper()
	Need(t, err != nil, "No error, want one with %q", parts)
	for _, part := range parts {
		That(t, strings.Contains(err.Error(), part), "Error %q does not have %q", err, part)
	}
}

// FieldsAndTypes leaves the wording of errors open.
func FieldsAndTypes(errs field.ErrorList) (all []string) {
	for _, err := range errs {
		all = append(all, err.Field+": "+string(err.Type))
	}
	return all
}

// Says fails a test where an error does not have the text in it, or where there is any and the text is empty.
func Says(t testing.TB, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && !strings.Contains(Text(err), text) {
		t.Errorf("The error is %v, want one with %q", err, text)
	}
}

// Text is what an error says, and nothing where there is none.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FromYAML decodes what a test has as text, without fields that the type does not know.
func FromYAML[T any](t testing.TB, text string) (value T) {
	t.Helper()
	err := yaml.UnmarshalStrict([]byte(text), &value)
	Need(t, err == nil, "Decoding %s: %v", text, err)
	return value
}

// FromJSON is for text of which every byte counts.
func FromJSON[T any](t testing.TB, text string) (value T) {
	t.Helper()
	err := json.Unmarshal([]byte(text), &value)
	Need(t, err == nil, "Decoding %s: %v", text, err)
	return value
}

// JSON encodes a value.
func JSON(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	NoError(t, err)
	return string(data)
}

// Pass lets time pass on the clock of a synctest bubble, and waits for what it sets off.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Each is what a function says of each of a list, to be compared with what a test wants.
func Each[T, U any](list []T, of func(T) U) (all []U) {
	for _, item := range list {
		all = append(all, of(item))
	}
	return all
}

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
