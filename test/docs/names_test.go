// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

var (
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// mention is how code, manifests and messages name a page, with or without a section.
	mention = regexp.MustCompile(`\bdocs/[\w./-]+\.(?:md|yaml|json|svg)(?:#[\w-]+)?`)
)

// Every link of a page leads to a file, and to a heading of it where it names one.
func TestLinksOfPages(t *testing.T) {
	links := 0
	for _, page := range allPages(t) {
		for _, link := range inlineLink.FindAllStringSubmatch(pages.Prose(file(t, page)), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			leads(t, page, target, anchor)
		}
	}
	expect.That(t, links >= 100, "Only %d links are found", links)
}

// Every page that code, manifests and messages name is there.
func TestPagesThatAreNamed(t *testing.T) {
	named := 0
	for _, dir := range []string{"Makefile", "README.md", "CONTRIBUTING.md", "SECURITY.md", "charts", "cmd", "config", "docs", "hack", "pkg", "release", "test"} {
		expect.NoError(t, fs.WalkDir(root, dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{"", ".go", ".md", ".yaml", ".txt", ".tmpl", ".tpl"}, filepath.Ext(path)) {
				return err
			}
			for _, page := range mention.FindAllString(file(t, path), -1) {
				named++
				target, anchor, _ := strings.Cut(page, "#")
				leads(t, path, target, anchor)
			}
			return nil
		}))
	}
	expect.That(t, named >= 100, "Only %d pages are named", named)
}

// leads reports a target that is not there, or has no heading of an anchor.
func leads(t *testing.T, from, target, anchor string) {
	t.Helper()
	if _, err := fs.Stat(root, target); err != nil {
		t.Errorf("%s names %s, which is not there", from, target)
		return
	}
	if anchor != "" && filepath.Ext(target) == ".md" {
		expect.That(t, slices.Contains(pages.Anchors(file(t, target)), anchor), "%s names %s#%s, and there is no such heading", from, target, anchor)
	}
}

// allPages are seen from the repository's root.
func allPages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	expect.NoError(t, fs.WalkDir(root, "docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// What people are told to have Argo CD ignore is called what the manager calls it.
func TestGitOpsNamesWhatIsWritten(t *testing.T) {
	section := pages.Section(file(t, "docs/install.md"), "gitops")
	for _, ignored := range []string{
		fmt.Sprintf(`select(.name == %q or .name == %q)`, webhookconfig.Queued, webhookconfig.NotOwn),
		fmt.Sprintf(`select(.manager == %q)`, patch.Manager),
		patch.ManagerAnnotation,
	} {
		expect.That(t, strings.Contains(section, ignored), "docs/install.md does not name %s", ignored)
	}
}
