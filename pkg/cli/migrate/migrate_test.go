// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const (
	older = head + "  podTemplateOverrides: []\n"
	// compactJSON takes a name and fields of the spec.
	compactJSON = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"%s"},"spec":{%s"runtimeRef":{"name":"torch"}}}`

	// diff begins one of older, of which the blank line goes.
	diff = "--- DIR/a.yaml\n+++ DIR/a.yaml\n@@ -1,7 +1,5 @@\n apiVersion: trainer.kubeflow.org/v1alpha1\n kind: TrainJob\n metadata: {name: job}\n" +
		"-\n spec:\n   runtimeRef: {name: torch}\n"

	foreign = "kind: Other\n"
	broken  = head + "  podTemplateOverrides: [{}]\n"
)

func TestCommand(t *testing.T) {
	type row struct {
		files, wantFiles map[string]string
		args             []string
		stdin, wantOut   string
		wantCode         int
	}
	expect.Rows(t, map[string]row{
		"the result of all files goes to standard output": {files: map[string]string{"a.yaml": older, "b.yaml": foreign}, args: []string{"-f", "DIR"},
			wantOut: reprinted + "---\n" + foreign},
		"standard input": {args: []string{"-f", "-"}, stdin: older, wantOut: reprinted},
		"in place": {files: map[string]string{"a.yaml": older, "b.yaml": foreign}, args: []string{"-f", "DIR", "--in-place"},
			wantFiles: map[string]string{"a.yaml": reprinted}},
		"a diff changes nothing": {files: map[string]string{"a.yaml": older, "b.yaml": foreign}, args: []string{"-f", "DIR", "--diff"},
			wantOut: diff + "-  podTemplateOverrides: []\n"},
		"a diff and the change of a last line that gets an end": {files: map[string]string{"a.yaml": "# a\n" + older + "  suspend: true"}, args: []string{"-f", "DIR", "--diff", "--in-place"},
			wantOut: strings.Replace(diff, "-1,7 +1,5", "-2,8 +2,6", 1) +
				"-  podTemplateOverrides: []\n-  suspend: true\n\\ No newline at end of file\n+  suspend: true\n",
			wantFiles: map[string]string{"a.yaml": "# a\n" + reprinted + "  suspend: true\n"}},
		"a file that cannot be expressed is left out and the others are not": {files: map[string]string{"a.yaml": older, "b.yaml": broken, "c.yaml": foreign}, args: []string{"-f", "DIR"},
			wantOut: reprinted + "---\n" + foreign, wantCode: exit.Findings},
		"and left as it is in place": {files: map[string]string{"a.yaml": older, "b.yaml": older + "---\n" + broken}, args: []string{"-f", "DIR", "--in-place"},
			wantFiles: map[string]string{"a.yaml": reprinted}, wantCode: exit.Findings},
		"what cannot be read is left out and the rest is not": {files: map[string]string{"a.yaml": older, "b.yaml": "{{- if .Values.a }}\na: 1\n{{- end }}\n", "c.yaml": older + "---\na: [\n"}, args: []string{"-f", "DIR", "--in-place"},
			wantFiles: map[string]string{"a.yaml": reprinted}, wantCode: exit.Findings},
		"files with directives": {files: map[string]string{"a.yaml": "%YAML 1.2\n---\n" + older, "b.yaml": "# b\n%YAML 1.2\n---\n" + older}, args: []string{"-f", "DIR"},
			wantOut: "%YAML 1.2\n---\n" + reprinted + "...\n# b\n%YAML 1.2\n---\n" + reprinted},
		"JSON values one after the other": {args: []string{"-f", "-"}, stdin: fmt.Sprintf(compactJSON+"\n"+compactJSON+"\n", "a", `"podTemplateOverrides":[],`, "b", `"podTemplateOverrides":[],`),
			wantOut: fmt.Sprintf(compactJSON+"\n"+compactJSON+"\n", "a", "", "b", "")},
		"an owner that Trainer would refuse": {args: []string{"-f", "-", "--owner", "me"}, wantCode: exit.Failed},
		"standard input in place":            {args: []string{"-f", "-", "--in-place"}, wantCode: exit.Failed},
		"the cluster in place":               {args: []string{"-A", "--in-place"}, wantCode: exit.Failed},
		"files and the cluster":              {args: []string{"-f", "-", "-A"}, wantCode: exit.Failed},
	}, func(t *testing.T, tc row) {
		dir := t.TempDir()
		want := map[string]string{}
		for name, text := range tc.files {
			want[name] = text
			if changed, ok := tc.wantFiles[name]; ok {
				want[name] = changed
			}
			expect.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		args := strings.Split(strings.ReplaceAll(strings.Join(tc.args, "\n"), "DIR", dir), "\n")
		out, err := kit.Run(t, NewCommand, cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}, tc.stdin, args...)
		expect.Same(t, "Unexpected exit code of error "+expect.Text(err), tc.wantCode, exit.Code(err))
		expect.Same(t, "Unexpected output", tc.wantOut, strings.ReplaceAll(out, dir, "DIR"))
		got := map[string]string{}
		for name := range tc.files {
			got[name] = read(t, filepath.Join(dir, name))
		}
		expect.Same(t, "Unexpected files", want, got)
	})
}
