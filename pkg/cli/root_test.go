// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestAFlagIsRefusedInWordsForPeople(t *testing.T) {
	for flags, want := range map[[2]string]string{
		{"--gpus-per-node", "0.5"}:     "--gpus-per-node 0.5: it takes a whole number",
		{"--nodes", "99999999999"}:     "--nodes 99999999999: it takes a whole number",
		{"--watch=perhaps", "--nodes"}: "--watch perhaps: it takes true or false",
		{"--no-such-flag", "1"}:        "unknown flag: --no-such-flag",
	} {
		t.Run(flags[0], func(t *testing.T) {
			cmd := NewCommand(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
			cmd.SetArgs([]string{"submit", "--runtime", "torch", flags[0], flags[1]})
			expect.Says(t, cmd.ExecuteContext(t.Context()), want)
		})
	}
}
