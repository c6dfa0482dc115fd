// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// OK ends a test at an error of what it only needs.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must ends a test likewise where there is a value beside the error: kit.Must(os.ReadFile(name))(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}

// Same reports how two values differ, as values of what they are.
func Same(t testing.TB, what string, want, got any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("Unexpected %s (-want,+got):\n%s", what, diff)
	}
}

// Says reports an error that does not have the text in it, or any error where the text is empty.
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
