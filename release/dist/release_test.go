// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/spdx/tools-golang/json"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/kueue-trainer/kueue-trainer/release/internal/check"
)

const testVersion = "v0.1.0"

var testDate = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// compileFast shares Go's build cache with the tests: it has their flags, and not those of a release.
func compileFast(command, out string, platform *v1.Platform) error {
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -X github.com/kueue-trainer/kueue-trainer/pkg/version.version="+testVersion, "-o", out, command)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// Everything that a release has is unpacked and tried, for the platform that this runs on.
func TestRelease(t *testing.T) {
	host := runtime.GOOS + "/" + runtime.GOARCH
	image := "linux/" + runtime.GOARCH
	r := &release{root: "../..", out: filepath.Join(t.TempDir(), "dist"), version: testVersion, revision: "abc", date: testDate,
		images: []string{image}, plugins: []string{host}, compile: compileFast}
	check.OK(t, r.make())
	artefact := func(name string) string { return filepath.Join(r.out, name) }
	plugin := fmt.Sprintf("kubectl-trainjob_%s_%s_%s", testVersion, runtime.GOOS, runtime.GOARCH)

	t.Run("the plugin says its version", func(t *testing.T) {
		dir := untarGz(t, artefact(plugin+".tar.gz"))
		if said := output(t, filepath.Join(dir, "kubectl-trainjob"), "--version"); !strings.Contains(said, testVersion) {
			t.Errorf("--version says %q, want %s in it", said, testVersion)
		}
		for _, name := range []string{"LICENSE", "kubectl_complete-trainjob"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("krew takes the plugin's manifest", func(t *testing.T) {
		output(t, "go", "tool", "validate-krew-manifest", "-skip-install", "-manifest", artefact("trainjob.yaml"))
	})
	t.Run("the chart installs the release's image", func(t *testing.T) {
		chart := check.Must(loader.Load(artefact("kueue-trainer-0.1.0.tgz")))(t)
		check.Same(t, "versions", []string{"0.1.0", testVersion}, []string{chart.Metadata.Version, chart.Metadata.AppVersion})
	})
	t.Run("so do the manifests", func(t *testing.T) {
		if content := check.File(t, artefact("install.yaml")); !strings.Contains(content, "image: ghcr.io/kueue-trainer/kueue-trainer:"+testVersion+"\n") {
			t.Error("install.yaml does not name the image")
		}
	})
	t.Run("what the pages download is there", func(t *testing.T) {
		named := 0
		for _, page := range []string{"README.md", "docs/install.md", "docs/plugin.md"} {
			for _, file := range regexp.MustCompile(`(?:\$RELEASE|/releases/download/\$VERSION)/([\w.]+)"`).FindAllStringSubmatch(check.File(t, filepath.Join(r.root, page)), -1) {
				named++
				if _, err := os.Stat(artefact(file[1])); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			}
		}
		if named < 5 {
			t.Errorf("only %d files are named", named)
		}
	})
	t.Run("the image runs", func(t *testing.T) {
		binary := extractManager(t, untar(t, artefact("kueue-trainer_"+testVersion+"_image.tar")))
		if runtime.GOOS != "linux" {
			t.Skip("the image is for Linux")
		}
		if said := output(t, binary, "--version"); !strings.Contains(said, testVersion) {
			t.Errorf("--version says %q, want %s in it", said, testVersion)
		}
	})
	for _, name := range []string{plugin, "image_" + strings.ReplaceAll(image, "/", "_")} {
		t.Run("what "+name+" is made of is told", func(t *testing.T) {
			in := check.Must(os.Open(artefact(name + ".spdx.json")))(t)
			doc := check.Must(json.Read(in))(t)
			kueue := strings.TrimSpace(output(t, "go", "list", "-C", "../..", "-m", "-f", "{{.Version}}", "sigs.k8s.io/kueue"))
			for _, p := range doc.Packages {
				if p.PackageName == "sigs.k8s.io/kueue" && p.PackageExternalReferences[0].Locator == "pkg:golang/sigs.k8s.io/kueue@"+kueue {
					return
				}
			}
			t.Errorf("sigs.k8s.io/kueue %s is not among %d packages", kueue, len(doc.Packages))
		})
	}
	t.Run("the checksums are those of all files", func(t *testing.T) {
		summed := 0
		for line := range strings.Lines(check.File(t, artefact("checksums.txt"))) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if got, err := sha256Of(artefact(name)); err != nil || got != sum {
				t.Errorf("%s has %s (%v), want %s", name, got, err, sum)
			}
			summed++
		}
		entries, err := os.ReadDir(r.out)
		if err != nil || summed != len(entries)-1 {
			t.Errorf("%d files are summed, of %d and the sums (%v)", summed, len(entries)-1, err)
		}
	})
}

func TestVersionIsOne(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3/..", "latest"} {
		if err := (&release{version: version, out: filepath.Join(t.TempDir(), "dist")}).make(); err == nil {
			t.Errorf("version %q is taken", version)
		}
	}
}

func TestNotesOf(t *testing.T) {
	changelog := "# Changelog\n\n## v1.1.0 - 2030-02-01\n\n- new\n\n### Upgrading\n\nnothing\n\n## v1.0.0\n\n- first\n\n## v0.9.0\n"
	for version, want := range map[string]string{
		"v1.1.0": "- new\n\n### Upgrading\n\nnothing\n", "v1.0.0": "- first\n", "v0.9.0": "", "v2.0.0": "", "v1.1": "",
	} {
		check.Same(t, "notes of "+version, want, notesOf(changelog, version))
	}
}

func TestTheTestsOfTheRevisionAreKept(t *testing.T) {
	for said, kept := range map[string]bool{"Tested: abc, with go": true, "Tested: abc+changes, with go": false, "Tested: another, with go": false} {
		r := &release{root: t.TempDir(), out: t.TempDir(), revision: "abc"}
		dir := filepath.Join(r.root, ".tests", "all")
		if err := r.tests(); err != nil {
			t.Errorf("without a run: %v", err)
		}
		check.OK(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "tests.md"), []byte(said), 0o644), r.tests()))
		if _, err := os.Stat(filepath.Join(r.out, "tests.md")); (err == nil) != kept {
			t.Errorf("%q is kept: %t, want %t", said, err == nil, kept)
		}
	}
}

func TestWindowsGetsAZip(t *testing.T) {
	from := filepath.Join(t.TempDir(), "program")
	check.OK(t, os.WriteFile(from, []byte("program"), 0o755))
	archive := filepath.Join(t.TempDir(), "plugin.zip")
	check.OK(t, packZip(archive, []file{{name: "kubectl-trainjob.exe", from: from, mode: 0o755}}, testDate))
	r := check.Must(zip.OpenReader(archive))(t)
	defer r.Close() //nolint:errcheck // only read
	if len(r.File) != 1 || r.File[0].Name != "kubectl-trainjob.exe" || r.File[0].Mode() != 0o755 || !r.File[0].Modified.Equal(testDate) {
		t.Errorf("The archive has %+v", r.File[0].FileHeader)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func untarGz(t *testing.T, path string) string {
	t.Helper()
	return extract(t, check.Must(gzip.NewReader(strings.NewReader(check.File(t, path))))(t))
}

func untar(t *testing.T, path string) string {
	t.Helper()
	return extract(t, strings.NewReader(check.File(t, path)))
}

// extract writes the files of a tar archive into a directory, which it returns.
func extract(t *testing.T, in io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	check.Archived(t, in, func(header *tar.Header, content []byte) {
		path := filepath.Join(dir, filepath.Clean("/"+header.Name))
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.OK(t, os.WriteFile(path, content, os.FileMode(header.Mode)))
	})
	return dir
}

// extractManager takes the program out of the only image of an OCI layout.
func extractManager(t *testing.T, dir string) string {
	t.Helper()
	_, index := check.Index(t, dir)
	manifest := check.Must(index.IndexManifest())(t)
	image := check.Must(index.Image(manifest.Manifests[0].Digest))(t)
	content := mutate.Extract(image)
	defer content.Close() //nolint:errcheck // only read
	return filepath.Join(extract(t, content), "kueue-trainer")
}
