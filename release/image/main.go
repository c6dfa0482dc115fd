// SPDX-License-Identifier: Apache-2.0

// Command image builds the manager's image without an engine: the binary for every platform,
// nothing else, as an OCI layout and as an archive that docker load and ctr import take. The
// same commit gives the same digest on every machine. With -binary it packs another program in
// the same way, as the kind cluster of the tests needs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	o := options{}
	flag.StringVar(&o.root, "root", "..", "the repository's root")
	flag.StringVar(&o.out, "out", "../dist/image", "directory for the OCI layout; the archives of single platforms lie beside it")
	flag.StringVar(&o.name, "name", "ghcr.io/kueue-trainer/kueue-trainer", "the image's repository")
	flag.StringVar(&o.version, "version", "main", "tag of the image, and what --version says")
	flag.StringVar(&o.revision, "revision", "", "commit that is built")
	flag.StringVar(&o.binary, "binary", "", "a static program to pack instead of building the manager; for one platform")
	flag.StringVar(&o.file, "file", managerName, "name of the program in the image's root directory")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flag.Parse()
	if err := run(o, *platforms); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// managerName is the manager's command, and the one file of its image.
const managerName = "kueue-trainer"

// options say what is built from what.
type options struct {
	root, out, name, version, revision string
	// binary is packed under the name file; empty means that the manager is built.
	binary, file string
}

func run(o options, platforms string) error {
	var images []platformImage
	names := strings.Split(platforms, ",")
	if o.binary != "" && len(names) != 1 {
		return fmt.Errorf("-binary is for one platform, not for %s", platforms)
	}
	for _, name := range names {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return fmt.Errorf("platform %q: %w", name, err)
		}
		binary := o.binary
		if binary == "" {
			if binary, err = o.build(platform); err != nil {
				return err
			}
		}
		image, err := o.image(binary, platform)
		if err != nil {
			return fmt.Errorf("image for %s: %w", platform, err)
		}
		images = append(images, platformImage{platform, image})
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	return o.write(images)
}
