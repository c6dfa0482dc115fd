// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/kueue-trainer/kueue-trainer/release/internal/check"
)

// written makes the images of a binary for two platforms and returns the digest of their index.
func written(t *testing.T, out, binary string) v1.Hash {
	t.Helper()
	o := Options{Out: out, Name: "example.com/kueue-trainer", File: Manager, Version: "v1.2.3", Revision: "abc"}
	var images []platformImage
	for _, platform := range []*v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}} {
		image := check.Must(o.image(binary, platform))(t)
		images = append(images, platformImage{platform, image})
	}
	check.Must(o.write(images))(t)
	return check.Must(check.Must(layout.ImageIndexFromPath(out))(t).Digest())(t)
}

func fakeBinary(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "built")
	check.OK(t, os.WriteFile(binary, []byte("the manager"), 0o755))
	return binary
}

func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	files := map[string]string{}
	check.Archived(t, content, func(header *tar.Header, data []byte) { files[header.Name] = string(data) })
	return files
}

func TestTheSameBinaryGivesTheSameDigest(t *testing.T) {
	first := written(t, filepath.Join(t.TempDir(), "image"), fakeBinary(t))
	check.Same(t, "digest of the second", first, written(t, filepath.Join(t.TempDir(), "image"), fakeBinary(t)))
}

func TestImageHasNothingButTheBinary(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	written(t, out, fakeBinary(t))
	image := check.Must(tarball.ImageFromPath(out+"-linux-arm64.tar", nil))(t)
	file := check.Must(image.ConfigFile())(t)
	got := []string{file.OS, file.Architecture, file.Config.User, file.Config.Entrypoint[0], file.Config.Labels["org.opencontainers.image.version"]}
	check.Same(t, "configuration", []string{"linux", "arm64", nobody, "/kueue-trainer", "v1.2.3"}, got)
	check.Same(t, "files", map[string]string{"kueue-trainer": "the manager"}, filesOf(t, image))
}

// Go's reader forgives an archive that breaks off; others do not.
func TestLayerIsAWholeArchive(t *testing.T) {
	layer := check.Must(layerOf(fakeBinary(t), Manager))(t)
	// Header, content and two empty blocks, of 512 bytes each, as POSIX has it.
	if end := make([]byte, 1024); len(layer) != 2048 || !bytes.HasSuffix(layer, end) {
		t.Errorf("The archive has %d bytes, want 2048 with two empty blocks at its end", len(layer))
	}
}

// One program is compiled for every platform, and in the image of that platform.
func TestBuildCompilesForEveryPlatform(t *testing.T) {
	// The manager would take minutes.
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                      "module github.com/kueue-trainer/kueue-trainer\n",
		"cmd/" + Manager + "/main.go": "package main\n\nfunc main() {}\n",
	} {
		path := filepath.Join(root, name)
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.OK(t, os.WriteFile(path, []byte(content), 0o600))
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	out := filepath.Join(t.TempDir(), "image")
	if _, err := Build(Options{Root: root, Out: out, Name: "example.com/kueue-trainer", File: Manager, Version: "v1.2.3",
		Platforms: []string{"linux/amd64", "linux/arm64"}}); err != nil {
		t.Fatal(err)
	}
	for arch, machine := range machines {
		image := check.Must(tarball.ImageFromPath(out+"-linux-"+arch+".tar", nil))(t)
		file := check.Must(image.ConfigFile())(t)
		program := check.Must(elf.NewFile(strings.NewReader(filesOf(t, image)[Manager])))(t)
		if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("The program for %s needs %v (%v)", arch, libraries, err)
		}
		if file.Architecture != arch || program.Machine != machine {
			t.Errorf("The image for %s says %s, its program %s", arch, file.Architecture, program.Machine)
		}
	}
}

func TestIndexTellsPlatformsApart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	written(t, out, fakeBinary(t))
	described, index := check.Index(t, out)
	manifest := check.Must(index.IndexManifest())(t)
	var platforms []string
	for _, one := range manifest.Manifests {
		platforms = append(platforms, one.Platform.String())
	}
	check.Same(t, "platforms", []string{"linux/amd64", "linux/arm64"}, platforms)
	if tag, err := name.NewTag(described.Annotations["org.opencontainers.image.ref.name"]); err != nil || tag.TagStr() != "v1.2.3" {
		t.Errorf("The index is tagged %s (%v), want v1.2.3", tag, err)
	}
}
