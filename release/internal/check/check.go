// SPDX-License-Identifier: Apache-2.0

// Package check says in a line what the tests of releases check, as test/kit does for the manager's.
package check

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// OK ends a test at an error of what it only needs.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must ends a test likewise where there is a value beside the error: check.Must(os.ReadDir(dir))(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return value
	}
}

// Same reports how two values differ, as values of what they are.
func Same(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Unexpected %s (-want,+got):\n%s", what, diff)
	}
}

// File is the text of a file.
func File(t testing.TB, path string) string {
	t.Helper()
	return string(Must(os.ReadFile(path))(t))
}

// Archived calls a function with all that a tar archive has.
func Archived(t testing.TB, in io.Reader, each func(header *tar.Header, content []byte)) {
	t.Helper()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		OK(t, err)
		each(header, Must(io.ReadAll(r))(t))
	}
}

// Index is the only index in an OCI layout, and what the layout says of it.
func Index(t testing.TB, dir string) (v1.Descriptor, v1.ImageIndex) {
	t.Helper()
	top := Must(layout.ImageIndexFromPath(dir))(t)
	described := Must(top.IndexManifest())(t).Manifests[0]
	return described, Must(top.ImageIndex(described.Digest))(t)
}
