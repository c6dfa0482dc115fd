// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

func TestAFileThatCannotBeWrittenIsReportedWithWhatWasDone(t *testing.T) {
	dir := t.TempDir()
	good, gone := filepath.Join(dir, "z.yaml"), filepath.Join(dir, "gone", "a.yaml")
	kit.OK(t, os.WriteFile(good, []byte(older), 0o600))
	var results []result
	for _, path := range []string{gone, good} {
		file := manifest.Parse(path, []byte(older))
		results = append(results, migrateFile(file, owner))
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &options{inPlace: true, streams: streams}
	err := o.finish(results)
	kit.Same(t, "exit code", exit.Failed, exit.Code(err))
	kit.Says(t, err, gone+" is left as it is")
	want := good + ":1: trainjob job: podTemplateOverrides → nothing\n2 TrainJobs: 1 migrated, 1 left as they were\n"
	kit.Same(t, "report", want, errOut.String())
	kit.Same(t, "file behind the one that failed", head, read(t, good))
}

func TestReplaceKeepsLinkAndMode(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "link.yaml")
	kit.OK(t, os.WriteFile(path, []byte("old"), 0o640))
	kit.OK(t, os.Symlink("a.yaml", link))
	kit.OK(t, replace(link, []byte("new")))
	kit.Same(t, "file that the link leads to", "new", read(t, path))
	info := kit.Must(os.Stat(path))(t)
	kit.Same(t, "mode", os.FileMode(0o640), info.Mode())
	entries := kit.Must(os.ReadDir(dir))(t)
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
	data := kit.Must(os.ReadFile(path))(t)
	return string(data)
}
