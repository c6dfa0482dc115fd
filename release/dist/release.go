// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/kueue-trainer/kueue-trainer/release/internal/images"
)

const downloads = "https://github.com/kueue-trainer/kueue-trainer/releases/download/"

// release is what is made, and of what.
type release struct {
	root, out         string
	version, revision string
	date              time.Time
	// images and plugins are platforms, such as linux/amd64.
	images, plugins []string
	// compile builds a command of the repository.
	compile func(command, out string, platform *v1.Platform) error
	// binaries is where they lie while the release is made.
	binaries string
}

var semver = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// make fills the directory out, which is emptied before.
func (r *release) make() error {
	if !semver.MatchString(r.version) {
		return fmt.Errorf("version %q: must be like v1.2.3", r.version)
	}
	var err error
	if r.binaries, err = os.MkdirTemp("", "kueue-trainer-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.binaries) //nolint:errcheck // a temporary directory
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	for _, step := range []func() error{r.notes, r.manifests, r.chart, r.pluginArchives, r.image, r.checksums, r.tests} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// notes writes what CHANGELOG.md says of the release.
func (r *release) notes() error {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes := notesOf(string(changelog), r.version)
	if notes == "" {
		return fmt.Errorf("CHANGELOG.md says nothing of %s: add a section \"## %s\"", r.version, r.version)
	}
	return r.write("notes.md", []byte(notes))
}

// notesOf returns the text below the heading of a version; empty without any.
func notesOf(changelog, version string) string {
	var notes []string
	inside := false
	for line := range strings.Lines(changelog) {
		if heading, found := strings.CutPrefix(line, "## "); found {
			fields := strings.Fields(heading)
			inside = len(fields) > 0 && fields[0] == version
			continue
		}
		if inside {
			notes = append(notes, line)
		}
	}
	text := strings.TrimSpace(strings.Join(notes, ""))
	if text == "" {
		return ""
	}
	return text + "\n"
}

// tests keeps the table of `make test-all`, if that has run on this revision. It tells of a run and
// has no checksum: who makes the release again has the same files otherwise.
func (r *release) tests() error {
	table, err := os.ReadFile(filepath.Join(r.root, ".tests", "all", "tests.md"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.HasPrefix(string(table), "Tested: "+r.revision+",") {
		return nil
	}
	if err != nil {
		return err
	}
	return r.write("tests.md", table)
}

// manifests writes config/default in one file, with the release's image.
func (r *release) manifests() error {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(r.root, "config", "default"))
	if err != nil {
		return fmt.Errorf("config/default: %w", err)
	}
	content, err := built.AsYaml()
	if err != nil {
		return err
	}
	const image = "image: " + images.Repository + ":"
	text := string(content)
	if n := strings.Count(text, image+"main\n"); n != 1 {
		return fmt.Errorf("config/default has %smain %d times, want once", image, n)
	}
	return r.write("install.yaml", []byte(strings.Replace(text, image+"main\n", image+r.version+"\n", 1)))
}

// chart packs the chart, which installs the release's image.
func (r *release) chart() error {
	chart, err := loader.Load(filepath.Join(r.root, "charts", "kueue-trainer"))
	if err != nil {
		return err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = strings.TrimPrefix(r.version, "v"), r.version
	// Not those of this checkout: the same release has the same checksums.
	chart.ModTime = r.date
	for _, f := range slices.Concat(chart.Raw, chart.Files, chart.Templates) {
		f.ModTime = r.date
	}
	chart.SchemaModTime = r.date
	_, err = chartutil.Save(chart, r.out)
	return err
}

// image writes the image of all platforms in one archive, and what it is made of.
func (r *release) image() error {
	o := images.Options{
		Root: r.root, Out: filepath.Join(r.binaries, "image"), Name: images.Repository, File: images.Manager,
		Version: r.version, Revision: r.revision, Platforms: r.images, Compile: r.compile,
	}
	digest, err := images.Build(o)
	if err != nil {
		return err
	}
	for _, name := range r.images {
		platform := strings.ReplaceAll(name, "/", "_")
		if err := r.describe("image_"+platform, filepath.Join(o.Out+"-binaries", platform, images.Manager)); err != nil {
			return err
		}
	}
	if err := r.write("image.digest", []byte(o.Name+"@"+digest.String()+"\n")); err != nil {
		return err
	}
	return packDir(filepath.Join(r.out, fmt.Sprintf("kueue-trainer_%s_image.tar", r.version)), o.Out, r.date)
}

// checksums writes those of all files, as sha256sum -c reads them.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, entry := range entries {
		sum, err := sha256Of(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum, entry.Name())
	}
	return r.write("checksums.txt", []byte(out.String()))
}

func sha256Of(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}
