// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const (
	here   = "github.com/kueue-trainer/kueue-trainer/"
	runner = "k8s.io/cli-runtime/pkg/"
)

// shared are packages of the plugin that uninstall is made of, which this binary brings as well.
var shared = map[string]bool{
	here + "pkg/cli/handback": true, here + "pkg/cli/installed": true, here + "pkg/cli/uninstall": true, runner + "genericiooptions": true,
}

// pluginOnly are the beginnings of what only the plugin needs.
var pluginOnly = []string{
	here + "pkg/cli/", here + "pkg/forecast", here + "pkg/kueuelib/scheduler", here + "pkg/patch/convert",
	here + "pkg/patch/provenance", here + "pkg/patch/rules", here + "pkg/releases", runner, "sigs.k8s.io/kustomize/", "k8s.io/kubectl/",
}

func TestLinksNothingOfThePluginAlone(t *testing.T) {
	list := exec.Command("go", "list", "-deps", ".")
	found := strings.Fields(string(expect.Must(list.Output())(t)))
	expect.Need(t, len(found) > 1000, "Only %d packages are linked: this looks at something else than the manager", len(found))
	for _, path := range found {
		for _, beginning := range pluginOnly {
			expect.That(t, shared[path] || !strings.HasPrefix(path, beginning), "The manager links %s, which only the plugin needs", path)
		}
	}
}
