// SPDX-License-Identifier: Apache-2.0

// Package docs compares pages of docs/ with what they speak of.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

var (
	// proof is a link to a file of specs, with the names of those that count.
	proof = regexp.MustCompile("\\]\\(\\.\\./([^)]*_test\\.go)\\)((?:[:;,]? `[^`]*`)*)")
	name  = regexp.MustCompile("`([^`]*)`")
)

// A row of docs/features.md that says "yes" or "partly" names its specs; all that are named exist.
func TestFeaturesAreProvedBySpecsThatExist(t *testing.T) {
	specs, proved := map[string][]*regexp.Regexp{}, 0
	for line := range strings.Lines(file(t, "docs/features.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || !strings.HasPrefix(line, "|") {
			continue
		}
		proofs := proof.FindAllStringSubmatch(cells[3], -1)
		if says := strings.TrimSpace(cells[2]); len(proofs) == 0 && (strings.HasPrefix(says, "yes") || strings.HasPrefix(says, "partly")) {
			t.Errorf("No spec is named for %s", cells[0])
		}
		for _, p := range proofs {
			if specs[p[1]] == nil {
				specs[p[1]] = expect.Each(specsIn(t, p[1]), func(nested []*ast.CallExpr) *regexp.Regexp {
					return regexp.MustCompile("^" + nameOf(nested) + "$")
				})
			}
			named := name.FindAllStringSubmatch(p[2], -1)
			expect.That(t, len(named) != 0, "%s: no spec of %s is named", cells[0], p[1])
			for _, n := range named {
				proved++
				exists := slices.ContainsFunc(specs[p[1]], func(spec *regexp.Regexp) bool { return spec.MatchString(n[1]) })
				expect.That(t, exists, "%s: %s has no spec %q", cells[0], p[1], n[1])
			}
		}
	}
	expect.That(t, proved >= 30, "Only %d specs are found in the table", proved)
}

// specsIn returns the specs, tables and containers of a file, each behind those that it is in.
func specsIn(t *testing.T, path string) (all [][]*ast.CallExpr) {
	t.Helper()
	parsed := expect.Must(parser.ParseFile(token.NewFileSet(), path, file(t, path), 0))(t)
	ast.PreorderStack(parsed, nil, func(node ast.Node, above []ast.Node) bool {
		if isSpec(node) {
			var nested []*ast.CallExpr
			for _, n := range append(above, node) {
				if isSpec(n) {
					nested = append(nested, n.(*ast.CallExpr))
				}
			}
			all = append(all, nested)
		}
		return true
	})
	return all
}

func isSpec(node ast.Node) bool {
	call, ok := node.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	fun, ok := call.Fun.(*ast.Ident)
	return ok && slices.Contains([]string{"Describe", "DescribeTable", "Entry", "It"}, fun.Name)
}

// nameOf returns what the full name of a spec matches.
func nameOf(nested []*ast.CallExpr) string {
	return strings.Join(expect.Each(nested, func(spec *ast.CallExpr) string { return textOf(spec.Args[0]) }), " ")
}

var verb = regexp.MustCompile(`%[a-z]`)

// textOf returns what matches the text of an expression, of which a variable may be anything.
func textOf(text ast.Expr) string {
	switch e := text.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return regexp.QuoteMeta(s)
		}
	case *ast.BinaryExpr:
		return textOf(e.X) + textOf(e.Y)
	case *ast.CallExpr:
		// fmt.Sprintf
		return verb.ReplaceAllString(textOf(e.Args[0]), ".*")
	}
	return ".*"
}

// followed is how a spec names the page, or the section of it, whose commands it runs.
var followed = regexp.MustCompile(`"(docs/[\w/-]+\.md)(?:#([\w-]+))?"`)

// Every sh block of a page for users and admins is in a section that a spec follows; what none runs is console.
func TestCommandsOfPagesAreRun(t *testing.T) {
	run, known := map[string]int{}, map[string]bool{}
	for _, suite := range []string{"e2e", "fleet"} {
		for _, spec := range expect.Must(fs.Glob(root, "test/"+suite+"/*_test.go"))(t) {
			for _, named := range followed.FindAllStringSubmatch(file(t, spec), -1) {
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
		for _, page := range expect.Must(fs.Glob(root, dir+"*.md"))(t) {
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
	for _, path := range expect.Must(fs.Glob(root, "test/e2e/*_test.go"))(t) {
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
