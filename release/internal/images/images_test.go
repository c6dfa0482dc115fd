// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// written makes the images of a binary for two platforms and returns the digest of their index.
func written(t *testing.T, out, binary string) v1.Hash {
	t.Helper()
	o := Options{Out: out, Name: "example.com/kueue-trainer", File: Manager, Version: "v1.2.3", Revision: "abc"}
	var images []platformImage
	for _, platform := range []*v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}} {
		image, err := o.image(binary, platform)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, platformImage{platform, image})
	}
	if _, err := o.write(images); err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func fakeBinary(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(binary, []byte("the manager"), 0o755); err != nil {
		t.Fatal(err)
	}
	return binary
}

func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	files := map[string]string{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(data)
	}
}

func TestTheSameBinaryGivesTheSameDigest(t *testing.T) {
	first := written(t, filepath.Join(t.TempDir(), "image"), fakeBinary(t))
	second := written(t, filepath.Join(t.TempDir(), "image"), fakeBinary(t))
	if first != second {
		t.Errorf("The digests are %s and %s", first, second)
	}
}

func TestImageHasNothingButTheBinary(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	written(t, out, fakeBinary(t))
	image, err := tarball.ImageFromPath(out+"-linux-arm64.tar", nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{file.OS, file.Architecture, file.Config.User, file.Config.Entrypoint[0], file.Config.Labels["org.opencontainers.image.version"]}
	if diff := cmp.Diff([]string{"linux", "arm64", nobody, "/kueue-trainer", "v1.2.3"}, got); diff != "" {
		t.Errorf("Unexpected configuration (-want,+got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"kueue-trainer": "the manager"}, filesOf(t, image)); diff != "" {
		t.Errorf("Unexpected files (-want,+got):\n%s", diff)
	}
}

// Go's reader forgives an archive that breaks off; others do not.
func TestLayerIsAWholeArchive(t *testing.T) {
	layer, err := layerOf(fakeBinary(t), Manager)
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	out := filepath.Join(t.TempDir(), "image")
	if _, err := Build(Options{Root: root, Out: out, Name: "example.com/kueue-trainer", File: Manager, Version: "v1.2.3",
		Platforms: []string{"linux/amd64", "linux/arm64"}}); err != nil {
		t.Fatal(err)
	}
	for arch, machine := range machines {
		image, err := tarball.ImageFromPath(out+"-linux-"+arch+".tar", nil)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(strings.NewReader(filesOf(t, image)[Manager]))
		if err != nil {
			t.Fatal(err)
		}
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
	layoutIndex, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	top, err := layoutIndex.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := layoutIndex.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, one := range manifest.Manifests {
		platforms = append(platforms, one.Platform.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("Unexpected platforms (-want,+got):\n%s", diff)
	}
	if tag, err := name.NewTag(top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]); err != nil || tag.TagStr() != "v1.2.3" {
		t.Errorf("The index is tagged %s (%v), want v1.2.3", tag, err)
	}
}
