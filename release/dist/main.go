// SPDX-License-Identifier: Apache-2.0

// Command dist makes everything that a release has: the manifests, the chart, the plugin for
// every platform with its krew manifest, the image, what each of them is made of, notes and
// checksums. Signatures and provenance are the workflow's.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kueue-trainer/kueue-trainer/release/internal/images"
)

func main() {
	r := release{}
	flag.StringVar(&r.root, "root", "..", "the repository's root")
	flag.StringVar(&r.out, "out", "../dist", "directory that is made")
	flag.StringVar(&r.version, "version", "", "the release, such as v1.2.3")
	flag.StringVar(&r.revision, "revision", "", "commit that is built")
	date := flag.String("date", "", "time of that commit, RFC 3339; files of the archives have it")
	imagePlatforms := flag.String("image-platforms", "linux/amd64,linux/arm64", "platforms of the image")
	pluginPlatforms := flag.String("plugin-platforms",
		"linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "platforms of the plugin")
	flag.Parse()
	if err := run(&r, *date, *imagePlatforms, *pluginPlatforms); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(r *release, date, imagePlatforms, pluginPlatforms string) error {
	var err error
	if r.date, err = time.Parse(time.RFC3339, date); err != nil {
		return fmt.Errorf("date: %w", err)
	}
	r.images = strings.Split(imagePlatforms, ",")
	r.plugins = strings.Split(pluginPlatforms, ",")
	r.compile = func(command, out string, platform *v1.Platform) error {
		return images.Compile(r.root, command, out, platform, r.version, r.revision)
	}
	return r.make()
}
