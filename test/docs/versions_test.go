// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What docs/versions.md says was tested together is what the control planes are built of; the chart takes no older Kubernetes.
func TestTestedTogether(t *testing.T) {
	const controlPlane = "test/localcluster/"
	minor := func(name string) string { return strings.Join(strings.Split(name, ".")[:2], ".") }
	kubernetes, kueue := required(t, controlPlane, "k8s.io/kubernetes"), required(t, controlPlane, "sigs.k8s.io/kueue")
	trainer, jobSet := required(t, controlPlane, "github.com/kubeflow/trainer/v2"), required(t, controlPlane, "sigs.k8s.io/jobset")
	row := func(kubernetes, trainer, jobSet string) string {
		return fmt.Sprintf("| %s | %s | %s | %s ", kubernetes, kueue, trainer, jobSet)
	}
	want := []string{row(kubernetes, trainer, jobSet)}
	oldest := minor(kubernetes)
	for _, dir := range expect.Must(fs.Glob(root, controlPlane+"kubernetes-*"))(t) {
		other := required(t, dir, "k8s.io/kubernetes")
		want, oldest = append(want, row(other, trainer, jobSet)), min(oldest, minor(other))
	}
	for _, with := range []struct{ trainer, jobSet string }{{"trainer-2.1", "trainer-2.1"}, {"trainer-2.2", "jobset-0.11"}} {
		want = append(want, row(kubernetes, required(t, controlPlane+with.trainer, "github.com/kubeflow/trainer/v2"), required(t, controlPlane+with.jobSet, "sigs.k8s.io/jobset")))
	}
	var got []string
	for line := range strings.Lines(file(t, "docs/versions.md")) {
		if cells := strings.Split(line, "|"); len(cells) == 8 && strings.HasPrefix(line, "| 1.") {
			got = append(got, strings.Join(cells[:5], "|"))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	expect.Same(t, "Unexpected rows of the table", want, got)
	chart := file(t, "charts/kueue-trainer/Chart.yaml")
	expect.That(t, strings.Contains(chart, fmt.Sprintf("\nkubeVersion: \">=%s.0-0\"\n", oldest)), "The chart does not begin at Kubernetes %s:\n%s", oldest, chart)
}

// required returns the version of a module in the go.mod of a directory below the repository's root, without its v.
func required(t *testing.T, dir, module string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(file(t, filepath.Join(dir, "go.mod")))
	expect.Need(t, found != nil, "%s does not require %s", dir, module)
	return found[1]
}

// root is the repository's.
var root = os.DirFS(filepath.Join("..", ".."))

// file returns the text of a file below the repository's root.
func file(t *testing.T, path string) string {
	t.Helper()
	return string(expect.Must(fs.ReadFile(root, path))(t))
}
