// SPDX-License-Identifier: Apache-2.0

// Command image builds the manager's image without an engine: the binary for every platform,
// nothing else, as an OCI layout and as an archive that docker load and ctr import take. With
// -binary it packs another program in the same way, as the kind cluster of the tests needs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/release/internal/images"
)

func main() {
	o := images.Options{}
	flag.StringVar(&o.Root, "root", "..", "the repository's root")
	flag.StringVar(&o.Out, "out", "../dist/image", "directory for the OCI layout; the archives of single platforms lie beside it")
	flag.StringVar(&o.Name, "name", images.Repository, "the image's repository")
	flag.StringVar(&o.Version, "version", "main", "tag of the image, and what --version says")
	flag.StringVar(&o.Revision, "revision", "", "commit that is built")
	flag.StringVar(&o.Binary, "binary", "", "a static program to pack instead of building the manager; for one platform")
	flag.StringVar(&o.File, "file", images.Manager, "name of the program in the image's root directory")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	flag.Parse()
	o.Platforms = strings.Split(*platforms, ",")
	digest, err := images.Build(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s@%s\n", o.Tag(), digest)
}
