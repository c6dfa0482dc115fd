// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const page = "# A page\n\n## First\nOne.\n```sh\n# no heading\n```\n### Below it\nTwo.\n## What `explain -f` says: [all](x.md), once\nThree.\n"

func TestAnchors(t *testing.T) {
	expect.Same(t, "Unexpected anchors", []string{"a-page", "first", "below-it", "what-explain--f-says-all-once"}, Anchors(page))
}

func TestSection(t *testing.T) {
	for name, want := range map[string]string{
		"first":                         "One.\n```sh\n# no heading\n```\n### Below it\nTwo.",
		"below-it":                      "Two.",
		"what-explain--f-says-all-once": "Three.",
		"no-heading":                    "",
		"none":                          "",
	} {
		expect.Same(t, "Unexpected section "+name, want, strings.TrimSpace(Section(page, name)))
	}
}
