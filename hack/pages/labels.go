// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
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
func labelValues(file string) ([]group, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var groups []group
	for _, decl := range parsed.Decls {
		constants, ok := decl.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST || !strings.HasPrefix(constants.Doc.Text(), introduction) {
			continue
		}
		g := group{Of: strings.TrimSuffix(oneLine(strings.TrimPrefix(constants.Doc.Text(), introduction)), ".")}
		for _, spec := range constants.Specs {
			w, err := wordOf(spec.(*ast.ValueSpec))
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", file, g.Of, err)
			}
			g.Words = append(g.Words, w)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// wordOf reads one constant, whose comment says "Name: what it means."
func wordOf(constant *ast.ValueSpec) (word, error) {
	name := constant.Names[0].Name
	literal, ok := constant.Values[0].(*ast.BasicLit)
	if !ok {
		return word{}, fmt.Errorf("%s is no literal", name)
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return word{}, err
	}
	meaning, ok := strings.CutPrefix(oneLine(constant.Doc.Text()), name+": ")
	if !ok {
		return word{}, fmt.Errorf("%s has no comment that says what it means", name)
	}
	return word{value, strings.TrimSuffix(meaning, ".")}, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
