// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

func TestAFileThatCannotBeWrittenIsReportedWithWhatWasDone(t *testing.T) {
	dir := t.TempDir()
	good, gone := filepath.Join(dir, "z.yaml"), filepath.Join(dir, "gone", "a.yaml")
	if err := os.WriteFile(good, []byte(older), 0o600); err != nil {
		t.Fatal(err)
	}
	var results []result
	for _, path := range []string{gone, good} {
		file := manifest.Parse(path, []byte(older))
		results = append(results, migrateFile(file, owner))
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &options{inPlace: true, streams: streams}
	err := o.finish(results)
	if exit.Code(err) != exit.Failed || !strings.Contains(err.Error(), gone+" is left as it is") {
		t.Errorf("Unexpected error: %v", err)
	}
	want := good + ":1: trainjob job: podTemplateOverrides → nothing\n2 TrainJobs: 1 migrated, 1 left as they were\n"
	if diff := cmp.Diff(want, errOut.String()); diff != "" {
		t.Errorf("Unexpected report (-want,+got):\n%s", diff)
	}
	if got := read(t, good); got != head {
		t.Errorf("The file behind the one that failed says:\n%s", got)
	}
}

func TestReplaceKeepsLinkAndMode(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "link.yaml")
	if err := os.WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.yaml", link); err != nil {
		t.Fatal(err)
	}
	if err := replace(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "new" {
		t.Errorf("What the link points to says %q", got)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o640 {
		t.Errorf("The mode is %v", info.Mode())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if entries[1].Type() != os.ModeSymlink || len(entries) != 2 {
		t.Errorf("In the directory there are now %v", entries)
	}
}

func TestReplaceRefusesWhatIsNoFile(t *testing.T) {
	if err := replace(t.TempDir(), []byte("new")); err == nil {
		t.Error("A directory was replaced")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
