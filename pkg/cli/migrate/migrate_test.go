// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
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

const served = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{
	"name":"job","namespace":"ns","uid":"u","resourceVersion":"7","generation":2,"creationTimestamp":"2030-01-01T00:00:00Z",
	"finalizers":["x.example.com/y"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"p"}],"managedFields":[{"manager":"kubectl"}],
	"labels":{"kueue.x-k8s.io/queue-name":"q"},"annotations":{"mine":"1","kubectl.kubernetes.io/last-applied-configuration":"{}"}},`

func TestExport(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"what the API server sets is left out, and what no type of ours has stays": {In: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"labels":{"a":"1"},"trainer":{"numNodes":2}},"status":{"conditions":[]}}`,
			Want: exported + "spec:\n  labels:\n    a: \"1\"\n  runtimeRef:\n    name: torch\n  suspend: true\n  trainer:\n    numNodes: 2\n"},
		"what kueue-trainer added is left out, and the suspension with it": {In: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"runtimePatches":[{"manager":"a.example.com/b","n":1},{"manager":"kueue.x-k8s.io/manager"}]}}`,
			Want: exported + "spec:\n  runtimePatches:\n  - manager: a.example.com/b\n    \"n\": 1\n  runtimeRef:\n    name: torch\n"},
		"the in-tree integration's empty entry of a TrainJob that its user suspended is left out": {In: strings.Replace(served, `"labels":{"kueue.x-k8s.io/queue-name":"q"},`, "", 1) +
			`"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"runtimePatches":[{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{}}}}]}}`,
			Want: strings.Replace(exported, "  labels:\n    kueue.x-k8s.io/queue-name: q\n", "", 1) + "spec:\n  runtimeRef:\n    name: torch\n  suspend: true\n"},
		"an entry with placements, of a TrainJob that Kueue manages without a queue's name": {In: strings.Replace(served, `"labels":{"kueue.x-k8s.io/queue-name":"q"},`, "", 1) +
			`"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"runtimePatches":[{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node"}]}}}}]}}`,
			Want: strings.Replace(exported, "  labels:\n    kueue.x-k8s.io/queue-name: q\n", "", 1) + "spec:\n  runtimeRef:\n    name: torch\n"},
		"also in Trainer 2.1": {In: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"metadata":{"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}}}]}}`,
			Want: exported + "spec:\n  runtimeRef:\n    name: torch\n"},
		"what runs in another cluster is left to the queue again": {In: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"managedBy":"kueue.x-k8s.io/multikueue"}}`,
			Want: exported + "spec:\n  runtimeRef:\n    name: torch\n"},
		"another manager stays": {In: served + `"spec":{"runtimeRef":{"name":"torch"},"suspend":true,"managedBy":"trainer.kubeflow.org/trainjob-controller"}}`,
			Want: exported + "spec:\n  managedBy: trainer.kubeflow.org/trainjob-controller\n  runtimeRef:\n    name: torch\n  suspend: true\n"},
		"a finished TrainJob": {In: served + `"spec":{"runtimeRef":{"name":"torch"}},"status":{"conditions":[{"type":"Complete","status":"True"}]}}`},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		u := &unstructured.Unstructured{}
		expect.NoError(t, u.UnmarshalJSON([]byte(tc.In)))
		file := expect.Must(exportOne(u))(t)
		got := ""
		if file != nil {
			got = string(file.Data)
		}
		expect.Same(t, "Unexpected manifest", tc.Want, got)
	})
}

const exported = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  annotations:
    mine: "1"
  labels:
    kueue.x-k8s.io/queue-name: q
  name: job
  namespace: ns
`

// MultiKueue makes them again of what its manager cluster has.
func TestExportLeavesCopiesOut(t *testing.T) {
	of := func(name string, labels map[string]string) client.Object {
		return &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
	}
	c := fake.NewClientBuilder().WithScheme(kit.Scheme(trainjob.AddToScheme)).WithObjects(
		of("own", nil), of("copy", map[string]string{kueue.MultiKueueOriginLabel: "far"})).Build()
	files, left, err := export(t.Context(), c, "ns")
	expect.NoError(t, err)
	expect.Same(t, "Unexpected TrainJobs are left out", []string{"1 TrainJob left out, made by MultiKueue: export those of its manager cluster"}, left)
	expect.That(t, len(files) == 1 && files[0].Path == "ns/own", "Exported %v", files)
}

func TestAFileThatCannotBeWrittenIsReportedWithWhatWasDone(t *testing.T) {
	dir := t.TempDir()
	good, gone := filepath.Join(dir, "z.yaml"), filepath.Join(dir, "gone", "a.yaml")
	expect.NoError(t, os.WriteFile(good, []byte(older), 0o600))
	var results []result
	for _, path := range []string{gone, good} {
		file := manifest.Parse(path, []byte(older))
		results = append(results, migrateFile(file, owner))
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &options{inPlace: true, streams: streams}
	err := o.finish(results)
	expect.Same(t, "Unexpected exit code", exit.Failed, exit.Code(err))
	expect.Says(t, err, gone+" is left as it is")
	want := good + ":1: trainjob job: podTemplateOverrides → nothing\n2 TrainJobs: 1 migrated, 1 left as they were\n"
	expect.Same(t, "Unexpected report", want, errOut.String())
	expect.Same(t, "Unexpected file behind the one that failed", reprinted, read(t, good))
}

func TestReplaceKeepsLinkAndMode(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "link.yaml")
	expect.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
	expect.NoError(t, os.Symlink("a.yaml", link))
	expect.NoError(t, replace(link, []byte("new")))
	expect.Same(t, "Unexpected file that the link leads to", "new", read(t, path))
	expect.Same(t, "Unexpected mode", os.FileMode(0o640), expect.Must(os.Stat(path))(t).Mode())
	entries := expect.Must(os.ReadDir(dir))(t)
	expect.That(t, entries[1].Type() == os.ModeSymlink && len(entries) == 2, "In the directory there are now %v", entries)
	expect.Says(t, replace(dir, []byte("new")), "it is not a regular file")
}

func read(t *testing.T, path string) string {
	t.Helper()
	data := expect.Must(os.ReadFile(path))(t)
	return string(data)
}

var (
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random manifests")
	manifests = flag.Int("manifests", 200, "how many to convert")
)

// What the text comes to say is what the conversion of its JSON says, and every comment
// is in the text or in the report, for manifests and manners of writing of all kinds.
func TestRandomManifests(t *testing.T) {
	s := random.New(*seed).Taken()
	for i := range *manifests {
		written := write(t, s, olderJob(s))
		file := manifest.Parse("f.yaml", []byte(written))
		r := migrateFile(file, owner)
		if r.failed > 0 {
			t.Fatalf("Manifest %d (-seed %d) is refused: %v\n%s", i, *seed, r.remarks, written)
		}
		if diff := cmp.Diff(converted(t, written), parsed(t, string(r.data))); diff != "" {
			t.Fatalf("Manifest %d (-seed %d) says something else (-want,+got):\n%s\n%s\n%s", i, *seed, diff, written, r.data)
		}
		for n := range strings.Count(written, "# comment") {
			comment := fmt.Sprintf("# comment %d.", n)
			if !strings.Contains(string(r.data), comment) && !strings.Contains(fmt.Sprint(r.remarks), comment) {
				t.Fatalf("Manifest %d (-seed %d) lost %q without a word:\n%s\n%s", i, *seed, comment, written, r.data)
			}
		}
	}
}

func olderJob(s random.Source) random.Object {
	fields := random.Object{"podTemplateOverrides": s.PodTemplateOverrides(), "suspend": true}
	if s.IntN(2) == 0 {
		maps.Copy(fields, s.Metadata())
	}
	return s.Job(fields)
}

// write returns a manifest as one of several people would write it.
func write(t *testing.T, s random.Source, job random.Object) string {
	t.Helper()
	data := expect.Must(json.MarshalIndent(job, "", strings.Repeat(" ", s.IntN(5))))(t)
	if s.IntN(4) == 0 {
		return string(data)
	}
	var doc yaml.Node
	expect.NoError(t, yaml.Unmarshal(expect.Must(sigsyaml.JSONToYAML(data))(t), &doc))
	comments := 0
	addComments(s, &doc, &comments)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2 + s.IntN(3))
	if s.IntN(2) == 0 {
		encoder.CompactSeqIndent()
	}
	expect.NoError(t, encoder.Encode(&doc))
	text := "# above\n---\n" + out.String() + "---\n# below\nkind: Other\n"
	if s.IntN(4) == 0 {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// addComments adds them where people have them.
func addComments(s random.Source, node *yaml.Node, count *int) {
	next := func() string {
		*count++
		return fmt.Sprintf("# comment %d.", *count-1)
	}
	for i, child := range node.Content {
		isKey := node.Kind == yaml.MappingNode && i%2 == 0
		if (isKey || node.Kind == yaml.SequenceNode) && s.IntN(10) == 0 {
			child.HeadComment = next()
		}
		if node.Kind == yaml.MappingNode && child.Kind == yaml.ScalarNode && !isKey && s.IntN(10) == 0 {
			child.LineComment = next()
		}
		addComments(s, child, count)
	}
}

// parsed returns the first document as canonical JSON.
func parsed(t *testing.T, text string) string {
	t.Helper()
	data, err := manifest.Parse("f.yaml", []byte(text)).Documents[0].JSON()
	expect.Need(t, err == nil, "%v\n%s", err, text)
	return string(expect.Must(sigsyaml.YAMLToJSON(data))(t))
}

// converted returns what the first document's JSON is converted to.
func converted(t *testing.T, text string) string {
	t.Helper()
	data, _, errs := convert.ManifestToRuntimePatches([]byte(parsed(t, text)), owner)
	expect.Need(t, len(errs) == 0, "%v", errs.ToAggregate())
	return string(expect.Must(sigsyaml.YAMLToJSON(data))(t))
}
