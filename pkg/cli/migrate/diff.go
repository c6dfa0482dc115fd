// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

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
