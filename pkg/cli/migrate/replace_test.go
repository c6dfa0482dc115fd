// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
	expect.Same(t, "Unexpected file behind the one that failed", head, read(t, good))
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
}

func TestReplaceRefusesWhatIsNoFile(t *testing.T) {
	err := replace(t.TempDir(), []byte("new"))
	expect.That(t, err != nil, "A directory was replaced")
}

func read(t *testing.T, path string) string {
	t.Helper()
	data := expect.Must(os.ReadFile(path))(t)
	return string(data)
}
