// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// group is what a label may be.
type group struct {
	// Of says which label of which metric.
	Of    string
	Words []word
}

type word struct{ Value, Meaning string }

// introduction is how the comment of constants begins that are values of a label.
const introduction = "The values of "

// labelValues reads the constants of the file that a comment introduces as values of labels.
func labelValues(file string) (groups []group) {
	parsed := attempt.Must(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments))
	for _, decl := range parsed.Decls {
		constants, ok := decl.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST || !strings.HasPrefix(constants.Doc.Text(), introduction) {
			continue
		}
		g := group{Of: strings.TrimSuffix(oneLine(strings.TrimPrefix(constants.Doc.Text(), introduction)), ".")}
		for _, spec := range constants.Specs {
			g.Words = append(g.Words, wordOf(spec.(*ast.ValueSpec)))
		}
		groups = append(groups, g)
	}
	return groups
}

// wordOf reads one constant, whose comment says "Name: what it means."
func wordOf(constant *ast.ValueSpec) word {
	name := constant.Names[0].Name
	literal, ok := constant.Values[0].(*ast.BasicLit)
	if !ok {
		attempt.Fail("%s is no literal", name)
	}
	meaning, ok := strings.CutPrefix(oneLine(constant.Doc.Text()), name+": ")
	if !ok {
		attempt.Fail("%s has no comment that says what it means", name)
	}
	return word{attempt.Must(strconv.Unquote(literal.Value)), strings.TrimSuffix(meaning, ".")}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
