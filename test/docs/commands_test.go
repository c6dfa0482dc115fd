// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

// followed is how a spec names the page, or the section of it, whose commands it runs.
var followed = regexp.MustCompile(`"(docs/[\w/-]+\.md)(?:#([\w-]+))?"`)

// Every sh block of a page for users and admins is in a section that a spec follows; what none runs is console.
func TestCommandsOfPagesAreRun(t *testing.T) {
	run, known := map[string]int{}, map[string]bool{}
	for _, suite := range []string{"e2e", "fleet"} {
		for _, spec := range expect.Must(filepath.Glob(filepath.Join("..", suite, "*_test.go")))(t) {
			for _, named := range followed.FindAllStringSubmatch(string(expect.Must(os.ReadFile(spec))(t)), -1) {
				if known[named[0]] {
					continue
				}
				known[named[0]] = true
				text := file(t, named[1])
				if named[2] != "" {
					text = pages.Section(text, named[2])
				}
				run[named[1]] += len(pages.Steps(text))
			}
		}
	}
	blocks := 0
	for _, dir := range []string{"docs/", "docs/runbooks/"} {
		for _, path := range expect.Must(filepath.Glob(filepath.Join("..", "..", dir, "*.md")))(t) {
			page := dir + filepath.Base(path)
			here := len(pages.Steps(file(t, page)))
			blocks += here
			expect.That(t, run[page] >= here, "%s has %d sh blocks, and specs run %d", page, here, run[page])
		}
	}
	expect.That(t, blocks >= 100, "Only %d blocks are found", blocks)
}

// make test leaves the specs of pages out: one of label core would not be run by it as CONTRIBUTING.md says.
func TestNoSpecOfAPageIsCore(t *testing.T) {
	found := 0
	for _, path := range expect.Must(filepath.Glob(filepath.Join("..", "e2e", "*_test.go")))(t) {
		for _, nested := range specsIn(t, path) {
			has := func(label string) bool {
				return slices.ContainsFunc(nested, func(spec *ast.CallExpr) bool {
					return slices.ContainsFunc(spec.Args, func(arg ast.Expr) bool { return isNamed(arg, label) })
				})
			}
			if has("docsPage") {
				found++
				expect.That(t, !has("core"), "%s: %s has both labels", path, nameOf(nested))
			}
		}
	}
	expect.That(t, found >= 10, "Only %d specs of pages are found", found)
}
