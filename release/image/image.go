// SPDX-License-Identifier: Apache-2.0

package main

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

// nobody is the user that the image runs as, by its number: there is no /etc/passwd.
const nobody = "65532:65532"

// platformImage is the image of one platform.
type platformImage struct {
	platform *v1.Platform
	image    v1.Image
}

// build compiles the manager for a platform and returns where it lies.
func (o options) build(platform *v1.Platform) (string, error) {
	out, err := filepath.Abs(filepath.Join(o.out+"-binaries", platform.OS+"_"+platform.Architecture, managerName))
	if err != nil {
		return "", err
	}
	const pkg = "github.com/kueue-trainer/kueue-trainer/pkg/version"
	// What Go stamps into a binary by itself would tell a dirty checkout from a clean one.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -X %[1]s.version=%[2]s -X %[1]s.revision=%[3]s", pkg, o.version, o.revision),
		"-o", out, "./cmd/"+managerName)
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.root, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the manager for %s: %w", platform, err)
	}
	return out, nil
}

// image makes an image of nothing but a binary.
func (o options) image(binary string, platform *v1.Platform) (v1.Image, error) {
	content, err := layerOf(binary, o.file)
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
		Entrypoint: []string{"/" + o.file}, User: nobody, WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    path.Base(o.name),
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  o.version,
			"org.opencontainers.image.revision": o.revision,
		},
	}
	if o.binary == "" {
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
	return out.Bytes(), w.Close()
}

// write writes the layout with the index of all platforms, an archive for each, and the digest.
func (o options) write(images []platformImage) error {
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	tag, err := name.NewTag(o.name + ":" + o.version)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one.image, Descriptor: v1.Descriptor{Platform: one.platform}})
		archive := fmt.Sprintf("%s-%s-%s.tar", o.out, one.platform.OS, one.platform.Architecture)
		if err := tarball.WriteToFile(archive, tag, one.image); err != nil {
			return fmt.Errorf("writing %s: %w", archive, err)
		}
	}
	dir, err := layout.Write(o.out, empty.Index)
	if err != nil {
		return err
	}
	if err := dir.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag.String()})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", tag, digest)
	return nil
}
