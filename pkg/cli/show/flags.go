// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// OutputFlag adds -o, which takes the formats that a command knows beside its text.
func OutputFlag(cmd *cobra.Command, format *string, known ...string) {
	names := known
	if slices.Contains(known, JSON) {
		names = append(slices.Clone(known), JSONPath+"TEMPLATE")
	}
	check := func(text string) error { return KnownFormat(text, known...) }
	cmd.Flags().VarP(&word{format, check}, "output", "o", either(names))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
}

// OneOf adds a flag that takes one of some words; what it has before is the default.
func OneOf(cmd *cobra.Command, value *string, name, usage string, words ...string) {
	cmd.Flags().Var(&word{value, func(text string) error {
		if slices.Contains(words, text) {
			return nil
		}
		return fmt.Errorf("--%s %s: use %s", name, text, either(words))
	}}, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// word is the value of a flag that not every text is right for.
type word struct {
	value *string
	check func(string) error
}

func (w *word) String() string {
	if w.value == nil {
		return ""
	}
	return *w.value
}

// Set takes a text that is right.
func (w *word) Set(text string) error {
	if err := w.check(text); err != nil {
		return err
	}
	*w.value = text
	return nil
}

// Type is what help says of the value.
func (*word) Type() string { return "string" }

// either is "wide, json or yaml".
func either(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
