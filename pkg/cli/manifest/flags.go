// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"io"

	"github.com/spf13/cobra"
)

// Flags are -f and -R, which name the files of a command.
type Flags struct {
	Filenames []string
	Recursive bool
}

// AddTo adds the flags to a command; more is what -f means to it beside that.
func (f *Flags) AddTo(cmd *cobra.Command, more string) {
	cmd.Flags().StringSliceVarP(&f.Filenames, "filename", "f", nil, "files, directories, or - for standard input"+more)
	cmd.Flags().BoolVarP(&f.Recursive, "recursive", "R", false, "also the directories below those named")
}

// Given reports whether files are named.
func (f *Flags) Given() bool { return len(f.Filenames) > 0 }

// Read reads the files.
func (f *Flags) Read(stdin io.Reader) ([]File, error) {
	return Read(f.Filenames, f.Recursive, stdin)
}
