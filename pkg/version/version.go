// SPDX-License-Identifier: Apache-2.0

// Package version says which build of kueue-trainer this is.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// version and revision are set when a release or an image is built (-ldflags -X).
var version, revision string

// Info is what is known of a build.
type Info struct {
	// Version is a release, or Go's pseudo-version of a checkout; "devel" where neither is known.
	Version string `json:"version"`
	// Revision is the commit; empty where that is not known.
	Revision string `json:"revision,omitempty"`
	// Go is the version of the compiler.
	Go string `json:"go"`
}

// Get returns what is known of this build.
func Get() Info {
	info := Info{Version: version, Revision: revision, Go: runtime.Version()}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		info.Version = cmp.Or(info.Version, "devel")
		return info
	}
	if build.Main.Version != "(devel)" {
		info.Version = cmp.Or(info.Version, build.Main.Version)
	}
	info.Version = cmp.Or(info.Version, "devel")
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
			info.Revision = cmp.Or(info.Revision, setting.Value)
		}
	}
	return info
}

func (i Info) String() string {
	if i.Revision == "" {
		return i.Version + " (" + i.Go + ")"
	}
	return i.Version + " (" + i.Revision + ", " + i.Go + ")"
}
