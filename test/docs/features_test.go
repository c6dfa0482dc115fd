// SPDX-License-Identifier: Apache-2.0

// Package docs compares pages of docs/ with what they speak of.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var (
	// proof is a link to a file of specs, with the names of those that count.
	proof = regexp.MustCompile("\\]\\(\\.\\./([^)]*_test\\.go)\\)((?:[:;,]? `[^`]*`)*)")
	name  = regexp.MustCompile("`([^`]*)`")
)

// A row of docs/features.md that says "yes" or "partly" names its specs; all that are named
// exist.
func TestFeaturesAreProvedBySpecsThatExist(t *testing.T) {
	page := expect.Must(os.ReadFile(filepath.Join("..", "..", "docs", "features.md")))(t)
	specs, proved := map[string][]*regexp.Regexp{}, 0
	for line := range strings.Lines(string(page)) {
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
				specs[p[1]] = expect.Each(specsIn(t, filepath.Join("..", "..", p[1])), func(nested []*ast.CallExpr) *regexp.Regexp {
					return regexp.MustCompile("^" + nameOf(nested) + "$")
				})
			}
			named := name.FindAllStringSubmatch(p[2], -1)
			expect.That(t, len(named) != 0, "%s: no spec of %s is named", cells[0], p[1])
			for _, n := range named {
				proved++
				if !slices.ContainsFunc(specs[p[1]], func(spec *regexp.Regexp) bool { return spec.MatchString(n[1]) }) {
					t.Errorf("%s: %s has no spec %q", cells[0], p[1], n[1])
				}
			}
		}
	}
	expect.That(t, proved >= 30, "Only %d specs are found in the table", proved)
}

// specsIn returns the specs, tables and containers of a file, each behind those that it is in.
func specsIn(t *testing.T, path string) (all [][]*ast.CallExpr) {
	t.Helper()
	file := expect.Must(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
	ast.PreorderStack(file, nil, func(node ast.Node, above []ast.Node) bool {
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

// textOf returns what matches the text of an expression: what is not written there, such as a
// variable, may be anything.
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
