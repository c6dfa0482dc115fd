// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
