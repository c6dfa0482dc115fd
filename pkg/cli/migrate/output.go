// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// output prints the results, or what changed, or changes the files: all that can be.
func (o *options) output(results []result) error {
	printed := false
	var failed []error
	for i := range results {
		r := &results[i]
		switch same := bytes.Equal(r.data, r.file.Data); {
		case r.failed+r.unreadable > 0:
		case o.diff && !same:
			if err := printDiff(o.streams.Out, r); err != nil {
				return err
			}
		case !o.diff && !o.inPlace:
			if err := o.print(r, printed); err != nil {
				return err
			}
			printed = true
		}
		if err := o.write(r); err != nil {
			r.leave()
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// print writes a file behind others.
func (o *options) print(r *result, behind bool) error {
	data := r.data
	switch {
	case behind && r.file.HasDirectives():
		data = append([]byte("...\n"), data...)
	case behind && !bytes.HasPrefix(data, []byte("---")):
		data = append([]byte("---\n"), data...)
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	_, err := o.streams.Out.Write(data)
	return err
}

func (o *options) write(r *result) error {
	if !o.inPlace || bytes.Equal(r.data, r.file.Data) {
		return nil
	}
	if err := replace(r.file.Path, r.data); err != nil {
		return fmt.Errorf("%s is left as it is: %w", r.file.Path, err)
	}
	return nil
}

// printDiff prints what changed in a file as a unified diff, coloured like git's.
func printDiff(out io.Writer, r *result) error {
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: diffLines(r.file.Data), B: diffLines(r.data), FromFile: r.file.Path, ToFile: r.file.Path, Context: 3,
	})
	if err != nil {
		return err
	}
	paint := show.Painter(out)
	for line := range strings.Lines(diff) {
		text, end := strings.TrimRight(line, "\r\n"), line[len(strings.TrimRight(line, "\r\n")):]
		switch text[0] {
		case '+':
			text = paint.Green(text)
		case '-':
			text = paint.Red(text)
		case '@':
			text = paint.Cyan(text)
		}
		if _, err := fmt.Fprint(out, text, end); err != nil {
			return err
		}
	}
	return nil
}

// diffLines are lines as a diff has them: each ends, and the last tells if the file's does not.
func diffLines(data []byte) []string {
	all := lines(data)
	if last := len(all) - 1; last >= 0 && !strings.HasSuffix(all[last], "\n") {
		all[last] += "\n\\ No newline at end of file\n"
	}
	return all
}

// replace writes new content to a file in one step, so that there is never half of it. Symbolic
// links stay and point to the new content, and the mode stays.
func replace(path string, data []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file: leave --in-place out, and the result goes to standard output")
	}
	// A file that may not be written could be replaced all the same.
	old, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := old.Close(); err != nil {
		return err
	}
	fresh, err := writeBeside(path, data, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("writing a file beside it: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}

// writeBeside makes a file in the directory of path; none when it fails.
func writeBeside(path string, data []byte, mode os.FileMode) (name string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}
