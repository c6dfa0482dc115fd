// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Run executes a command of the plugin, and returns what it wrote to standard output.
func Run[F any](
	t testing.TB, command func(F, genericiooptions.IOStreams) *cobra.Command, flags F, stdin string, args ...string,
) (string, error) {
	t.Helper()
	streams, in, out, _ := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	cmd := command(flags, streams)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}
