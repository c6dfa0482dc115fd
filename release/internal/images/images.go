// SPDX-License-Identifier: Apache-2.0

// Package images builds images without an engine: one program for every platform, nothing else.
// The same commit gives the same digest on every machine with the same Go, which go.mod names.
package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Manager is the manager's command, and the one file of its image.
const Manager = "kueue-trainer"

// Repository is where the manager's image is published.
const Repository = "ghcr.io/kueue-trainer/kueue-trainer"

// Options say what is built from what.
type Options struct {
	// Root is the repository's.
	Root string
	// Out is a directory for the OCI layout; archives of single platforms lie beside it, with
	// the platform in their names.
	Out string
	// Name is the image's repository, Version its tag, and what --version says.
	Name, Version string
	// Revision is the commit that is built.
	Revision string
	// Platforms, such as linux/amd64.
	Platforms []string
	// Binary is packed under the name File; empty means that the manager is built.
	Binary, File string
	// Compile builds a command of the repository; nil is Compile.
	Compile func(command, out string, platform *v1.Platform) error
}

// Build builds the images of all platforms and returns the digest of their index.
func Build(o Options) (v1.Hash, error) {
	if o.Binary != "" && len(o.Platforms) != 1 {
		return v1.Hash{}, fmt.Errorf("one program is for one platform, not for %v", o.Platforms)
	}
	var images []platformImage
	for _, name := range o.Platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("platform %q: %w", name, err)
		}
		binary := o.Binary
		if binary == "" {
			if binary, err = o.build(platform); err != nil {
				return v1.Hash{}, err
			}
		}
		image, err := o.image(binary, platform)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("image for %s: %w", platform, err)
		}
		images = append(images, platformImage{platform, image})
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return v1.Hash{}, err
	}
	return o.write(images)
}

// Tag is the image's name with its tag.
func (o Options) Tag() string { return o.Name + ":" + o.Version }

// nobody is the user that the image runs as, by its number: there is no /etc/passwd.
const nobody = "65532:65532"

// platformImage is the image of one platform.
type platformImage struct {
	platform *v1.Platform
	image    v1.Image
}

// build compiles the manager for a platform and returns where it lies.
func (o Options) build(platform *v1.Platform) (string, error) {
	out, err := filepath.Abs(filepath.Join(o.Out+"-binaries", platform.OS+"_"+platform.Architecture, Manager))
	if err != nil {
		return "", err
	}
	if o.Compile != nil {
		return out, o.Compile("./cmd/"+Manager, out, platform)
	}
	return out, Compile(o.Root, "./cmd/"+Manager, out, platform, o.Version, o.Revision)
}

// Compile builds a command of the repository the same way on every machine.
func Compile(root, command, out string, platform *v1.Platform, version, revision string) error {
	const pkg = "github.com/kueue-trainer/kueue-trainer/pkg/version"
	// What Go stamps into a binary by itself would tell a dirty checkout from a clean one.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.revision=%[3]s", pkg, version, revision), "-o", out, command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s for %s: %w", command, platform, err)
	}
	return nil
}

// image makes an image of nothing but a binary.
func (o Options) image(binary string, platform *v1.Platform) (v1.Image, error) {
	content, err := layerOf(binary, o.File)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{CreatedBy: "release/image", Created: v1.Time{Time: time.Unix(0, 0).UTC()}}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = platform.OS, platform.Architecture
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{
		Entrypoint: []string{"/" + o.File}, User: nobody, WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    path.Base(o.Name),
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  o.Version,
			"org.opencontainers.image.revision": o.Revision,
		},
	}
	if o.Binary == "" {
		file.Config.Labels["org.opencontainers.image.description"] = "Kubeflow TrainJobs under Kueue's quotas"
		file.Config.Labels["org.opencontainers.image.source"] = "https://github.com/kueue-trainer/kueue-trainer"
	}
	return mutate.ConfigFile(image, file)
}

// layerOf returns a tar archive with a binary in its root, the same for the same binary.
func layerOf(binary, file string) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	header := &tar.Header{Name: file, Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	// Its end is part of the archive.
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// write writes the layout with the index of all platforms, an archive for each, and the digest.
func (o Options) write(images []platformImage) (v1.Hash, error) {
	if err := os.RemoveAll(o.Out); err != nil {
		return v1.Hash{}, err
	}
	tag, err := name.NewTag(o.Tag())
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one.image, Descriptor: v1.Descriptor{Platform: one.platform}})
		archive := fmt.Sprintf("%s-%s-%s.tar", o.Out, one.platform.OS, one.platform.Architecture)
		if err := tarball.WriteToFile(archive, tag, one.image); err != nil {
			return v1.Hash{}, fmt.Errorf("writing %s: %w", archive, err)
		}
	}
	dir, err := layout.Write(o.Out, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := dir.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag.String()})); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}
