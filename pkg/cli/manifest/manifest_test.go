// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestParse(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, []string]{
		"nothing":                            {In: "", Want: nil},
		"comments alone":                     {In: "# a\n---\n# b\n", Want: nil},
		"one document":                       {In: "a: 1\n", Want: []string{"1 a: 1\n"}},
		"a separator before and after":       {In: "---\na: 1\n---\n", Want: []string{"2 a: 1\n"}},
		"comments belong to their document":  {In: "a: 1\n--- # first\n# second\nb: 2\n", Want: []string{"1 a: 1\n", "2  # first\n# second\nb: 2\n"}},
		"an end marker":                      {In: "a: 1\n...\n---\nb: 2\n", Want: []string{"1 a: 1\n", "4 b: 2\n"}},
		"dashes within a text are no marker": {In: "a: |\n  ---\n  x\n", Want: []string{"1 a: |\n  ---\n  x\n"}},
		"JSON":                               {In: `{"a": 1}`, Want: []string{`1 {"a": 1}`}},
		"JSON values one after the other":    {In: "{\"a\": 1}\n{\"b\": 2}{\"c\": 3}\n", Want: []string{`1 {"a": 1}`, `2 {"b": 2}`, "2 {\"c\": 3}\n"}},
		"directives":                         {In: "# c\n%YAML 1.2\n---\na: 1\n...\n%YAML 1.1\n%TAG ! x\n---\nb: 2\n", Want: []string{"4 a: 1\n", "9 b: 2\n"}},
		"Windows' line ends":                 {In: "a: 1\r\n---\r\nb: 2\r\n", Want: []string{"1 a: 1\r\n", "3 b: 2\r\n"}},
	}, func(t *testing.T, tc expect.Row[string, []string]) {
		got := expect.Each(Parse("f.yaml", []byte(tc.In)).Documents, func(doc Document) string { return fmt.Sprintf("%d %s", doc.Line, doc.Text()) })
		expect.Same(t, "Unexpected documents", tc.Want, got)
	})
}

func TestParseGoesOnBehindWhatCannotBeRead(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"a tab":                         {In: "a: 1\n---\nb: 1\n\tc: 2\n---\nd: 1\n", Want: "f.yaml:4: "},
		"a template":                    {In: "a: 1\n---\n{{- if .Values.a }}\nb: 2\n{{- end }}\n---\nd: 1\n", Want: "f.yaml:3: "},
		"two contents in one document":  {In: "a: 1\n---\n{b: 1}\n{c: 2}\n---\nd: 1\n", Want: "f.yaml:4: "},
		"another document behind a CR":  {In: "a: 1\n---\nb: 1\r---\rc: 2\n---\nd: 1\n", Want: "f.yaml:3: there are several documents in it"},
		"directives without a document": {In: "a: 1\n---\n%YAML 1.2\n...\n---\nd: 1\n", Want: "f.yaml:"},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		file := Parse("f.yaml", []byte(tc.In))
		err := file.Err()
		expect.That(t, err != nil && strings.HasPrefix(err.Error(), tc.Want), "Unexpected error: %v", err)
		n := len(file.Documents)
		expect.That(t, n == 3 && file.Documents[0].Err == nil && file.Documents[2].Err == nil, "%d documents, and not the second of three alone cannot be read", n)
		_, err = file.Documents[1].TrainJobs()
		expect.That(t, err != nil, "Objects were read from what cannot be read")
	})
}

// YAML has no surrogates, with which JSON escapes what is beyond 16 bits.
func TestEscapedSurrogatesOfJSON(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"a pair":             {In: `{"a": "\ud83d\ude80"}`, Want: `{"a":"🚀"}`},
		"two, in capitals":   {In: `{"a": "\uD83D\uDE80\uD83D\uDE80"}`, Want: `{"a":"🚀🚀"}`},
		"behind a backslash": {In: `{"a": "\\\ud83d\ude80"}`, Want: `{"a":"\\🚀"}`},
		"text that reads so": {In: `{"a": "\\ud83d\\ude80"}`, Want: `{"a":"\\ud83d\\ude80"}`},
		"a rune of 16 bits":  {In: `{"a": "\u20ac"}`, Want: `{"a":"€"}`},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		doc := &Parse("f.json", []byte(tc.In)).Documents[0]
		expect.That(t, doc.Err == nil, "It cannot be read: %v", doc.Err)
		expect.Same(t, "Unexpected content", tc.Want, string(expect.Must(doc.JSON())(t)))
		expect.Same(t, "Unexpected text", tc.In, string(doc.Text()))
	})
}

func TestTrainJobs(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, []string]{
		"of today":                      {In: "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a}}", Want: []string{"a"}},
		"from before the first release": {In: "{apiVersion: kubeflow.org/v2alpha1, kind: TrainJob, metadata: {name: a}}", Want: []string{"a"}},
		"another kind of the group":     {In: "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}}"},
		"another group":                 {In: "{apiVersion: example.com/v1, kind: TrainJob, metadata: {name: a}}"},
		"in a list": {In: "{apiVersion: v1, kind: List, items: [{apiVersion: kubeflow.org/v2alpha1, kind: TrainJob, metadata: {name: a}}, " +
			"{apiVersion: v1, kind: Pod}, {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: b, namespace: ns}}]}",
			Want: []string{"a", "ns/b"}},
	}, func(t *testing.T, tc expect.Row[string, []string]) {
		found := expect.Must(Parse("f.yaml", []byte(tc.In)).Documents[0].TrainJobs())(t)
		expect.Same(t, "Unexpected TrainJobs", tc.Want, expect.Each(found, func(o Object) string { return o.Name() }))
	})
}

func TestObjectsByTheirGroup(t *testing.T) {
	type row struct {
		data, group, kind string
		want              []string
	}
	expect.Rows(t, map[string]row{
		"of the core group":                 {data: "{apiVersion: v1, kind: Node, metadata: {name: a}}", kind: "Node", want: []string{"a"}},
		"of the core group, in a list":      {data: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: a}}]}", kind: "Node", want: []string{"a"}},
		"of another group than the core's":  {data: "{apiVersion: metrics.k8s.io/v1, kind: Node, metadata: {name: a}}", kind: "Node"},
		"of the core group and not another": {data: "{apiVersion: v1, kind: Workload, metadata: {name: a}}", group: "v1", kind: "Workload"},
	}, func(t *testing.T, tc row) {
		found := expect.Must(Parse("f.yaml", []byte(tc.data)).Documents[0].Objects(tc.kind, tc.group))(t)
		expect.Same(t, "Unexpected objects", tc.want, expect.Each(found, func(o Object) string { return o.Name() }))
	})
}

func TestItemsThatAreNotWrittenInTheList(t *testing.T) {
	for _, items := range []string{"Items: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob}]", "<<: {items: [{kind: TrainJob}]}"} {
		file := Parse("f.yaml", []byte("{apiVersion: v1, kind: List, "+items+"}"))
		_, err := file.Documents[0].TrainJobs()
		expect.Says(t, err, "write items as a list")
	}
}

func TestLineOf(t *testing.T) {
	file := Parse("f.yaml", []byte("first: true\n---\nspec:\n  list:\n  - name: a\n  - name: b\n    deep: {}\n"))
	doc := &file.Documents[1]
	got := map[string]int{}
	for _, path := range []string{"spec", "spec.list[1].name", "spec.list[1].deep.gone", "spec.list[7]", "other", ""} {
		got[path] = doc.LineOf(path)
	}
	want := map[string]int{"spec": 3, "spec.list[1].name": 6, "spec.list[1].deep.gone": 7, "spec.list[7]": 4, "other": 3, "": 3}
	expect.Same(t, "Unexpected lines", want, got)
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"b.yaml": "b: 1", "a.json": "{}", "notes.txt": "no", "below/c.yml": "c: 1",
	} {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	type row struct {
		paths     []string
		recursive bool
		want      []string
	}
	expect.Rows(t, map[string]row{
		"a directory":              {paths: []string{dir}, want: []string{"a.json", "b.yaml"}},
		"and what is below it":     {paths: []string{dir}, recursive: true, want: []string{"a.json", "b.yaml", "below/c.yml"}},
		"a file of any name":       {paths: []string{filepath.Join(dir, "notes.txt")}, want: []string{"notes.txt"}},
		"standard input":           {paths: []string{Stdin}, want: []string{Stdin}},
		"several, in their order":  {paths: []string{Stdin, filepath.Join(dir, "b.yaml")}, want: []string{Stdin, "b.yaml"}},
		"nothing when none is set": {},
	}, func(t *testing.T, tc row) {
		files := expect.Must(Read(tc.paths, tc.recursive, strings.NewReader("in: 1")))(t)
		got := expect.Each(files, func(file File) string { return strings.TrimPrefix(file.Path, dir+"/") })
		expect.Same(t, "Unexpected files", tc.want, got)
	})
}

const runtimeList = `apiVersion: v1
kind: List
items:
- {apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: torch}}
- {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: own}}
---
{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: own, namespace: other}}
`

func TestRuntimes(t *testing.T) {
	unreadable := Parse("g.yaml", []byte("a: b: c\n"))
	runtimes := expect.Must(NewRuntimes(nil, []File{*Parse("f.yaml", []byte(runtimeList)), *unreadable}, "team", nil))(t)
	type row struct {
		into client.Object
		key  client.ObjectKey
		gone bool
	}
	expect.Rows(t, map[string]row{
		"of the cluster, in a list":        {into: &trainer.ClusterTrainingRuntime{}, key: client.ObjectKey{Name: "torch"}},
		"of the namespace given":           {into: &trainer.TrainingRuntime{}, key: client.ObjectKey{Namespace: "team", Name: "own"}},
		"of a namespace that it names":     {into: &trainer.TrainingRuntime{}, key: client.ObjectKey{Namespace: "other", Name: "own"}},
		"one that no file has":             {into: &trainer.TrainingRuntime{}, key: client.ObjectKey{Namespace: "team", Name: "torch"}, gone: true},
		"one of the cluster that none has": {into: &trainer.ClusterTrainingRuntime{}, key: client.ObjectKey{Name: "own"}, gone: true},
	}, func(t *testing.T, tc row) {
		err := runtimes.Get(t.Context(), tc.key, tc.into)
		if apierrors.IsNotFound(err) != tc.gone || !tc.gone && (err != nil || client.ObjectKeyFromObject(tc.into) != tc.key) {
			t.Errorf("Got %v: %v", client.ObjectKeyFromObject(tc.into), err)
		}
	})
}

func TestARuntimeThatIsNoneIsNamedWithItsLine(t *testing.T) {
	file := Parse("f.yaml", []byte("apiVersion: v1\nkind: List\nitems:\n- apiVersion: trainer.kubeflow.org/v1alpha1\n  kind: TrainingRuntime\n  metadata: {name: own}\n  spec: 5\n"))
	_, err := NewRuntimes(nil, []File{*file}, "team", nil)
	var at *Error
	expect.That(t, errors.As(err, &at) && at.Line == 4, "Unexpected error: %v", err)
}
