// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
		changed := !bytes.Equal(r.data, r.file.Data)
		if r.failed+r.unreadable > 0 || !changed && (o.diff || o.inPlace) {
			continue
		}
		var err error
		switch {
		case o.diff:
			err = printDiff(o.streams.Out, r)
		case !o.inPlace:
			err = o.print(r, printed)
			printed = true
		}
		if err != nil {
			return err
		}
		if !o.inPlace {
			continue
		}
		if err := replace(r.file.Path, r.data); err != nil {
			r.leave()
			failed = append(failed, fmt.Errorf("%s is left as it is: %w", r.file.Path, err))
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

// printDiff prints what changed in a file as a unified diff, coloured like git's.
func printDiff(out io.Writer, r *result) error {
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: diffLines(r.file.Data), B: diffLines(r.data), FromFile: r.file.Path, ToFile: r.file.Path, Context: 3,
	})
	if err != nil {
		return err
	}
	paint := show.Painter(out)
	colours := map[byte]func(string) string{'+': paint.Green, '-': paint.Red, '@': paint.Cyan}
	for line := range strings.Lines(diff) {
		text := strings.TrimRight(line, "\r\n")
		if colour := colours[text[0]]; colour != nil {
			line = colour(text) + line[len(text):]
		}
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
	}
	return nil
}

// diffLines are lines as a diff has them: each ends, and the last tells if the file's does not.
func diffLines(data []byte) []string {
	all := slices.Collect(strings.Lines(string(data)))
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
	fresh, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return errors.Join(fmt.Errorf("writing a file beside it: %w", err), old.Close())
	}
	_, err = fresh.Write(data)
	if err = errors.Join(err, fresh.Chmod(info.Mode().Perm()), fresh.Sync(), fresh.Close(), old.Close()); err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()))
	}
	return nil
}
