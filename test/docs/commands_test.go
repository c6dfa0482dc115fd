// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	is := func(name string) func(ast.Expr) bool {
		return func(node ast.Expr) bool { id, ok := node.(*ast.Ident); return ok && id.Name == name }
	}
	found, files := 0, token.NewFileSet()
	for _, path := range expect.Must(filepath.Glob(filepath.Join("..", "e2e", "*_test.go")))(t) {
		// within walks through what is in a container of one of the labels.
		var within func(node ast.Node, core, page bool)
		within = func(node ast.Node, core, page bool) {
			ast.Inspect(node, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isSpec(call) {
					return true
				}
				core, page := core || slices.ContainsFunc(call.Args, is("core")), page || slices.ContainsFunc(call.Args, is("docsPage"))
				if page {
					found++
				}
				expect.That(t, !core || !page, "%s has both labels", files.Position(call.Pos()))
				for _, arg := range call.Args {
					within(arg, core, page)
				}
				return false
			})
		}
		within(expect.Must(parser.ParseFile(files, path, nil, 0))(t), false, false)
	}
	expect.That(t, found >= 10, "Only %d specs of pages are found", found)
}
