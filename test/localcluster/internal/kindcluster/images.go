// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
)

// registry is where nothing can be pulled from: all images are loaded into the nodes.
const registry = "kueue-trainer.test"

// payload is the program of test/payload, which pods on the real kubelet run.
const payload = "payload"

// programs are what images are made of.
var programs = []string{build.JobSetManager, build.TrainerManager, "kueue", "kwok", build.KueueTrainer, payload}

// image returns the image of a program. The tag says the release of a program that has one, as
// images that are pulled do, and changes with the program, so that a Deployment is rolled out when
// it does; that of the payload stands in TrainJobs.
func (c *Cluster) image(ctx context.Context, program string) (repository, tag string, err error) {
	repository = registry + "/" + program
	if program == payload {
		return repository, "local", nil
	}
	content, err := os.ReadFile(c.binary(program))
	if err != nil {
		return "", "", err
	}
	tag = fmt.Sprintf("%x", sha256.Sum256(content))[:12]
	for _, bin := range c.binaries() {
		if bin.Name == filepath.Base(c.binary(program)) && bin.Module != "" {
			module, err := c.Builder.Module(ctx, bin.Dir, bin.Module)
			return repository, module.Version + "-" + tag, err
		}
	}
	return repository, tag, nil
}

// binary is where a program lies.
func (c *Cluster) binary(program string) string {
	if program == build.JobSetManager || program == build.TrainerManager {
		program = build.DefaultTrainer().Binary(program)
	}
	return filepath.Join(c.Builder.BinDir(), program)
}

// binaries are what the images are made of, and the plugin for whoever uses the cluster.
func (c *Cluster) binaries() []build.Binary {
	var wanted []build.Binary
	for _, bin := range build.All(build.DefaultKubernetes(), build.DefaultTrainer()) {
		switch bin.Name {
		case build.DefaultTrainer().Binary(build.JobSetManager), build.DefaultTrainer().Binary(build.TrainerManager),
			"kueue", "kwok", build.KueueTrainer, build.Plugin, "kubectl":
			wanted = append(wanted, bin)
		}
	}
	return append(wanted, build.Binary{Name: payload, Dir: ".", Package: "./test/payload"})
}

// packImages makes an archive per program, each with nothing but that, and returns where they lie.
func (c *Cluster) packImages(ctx context.Context) ([]string, error) {
	start := time.Now()
	archives := make([]string, len(programs))
	group, ctx := errgroup.WithContext(ctx)
	for i, program := range programs {
		repository, tag, err := c.image(ctx, program)
		if err != nil {
			return nil, err
		}
		out := filepath.Join(c.Dir, "images", program)
		archives[i] = fmt.Sprintf("%s-linux-%s.tar", out, runtime.GOARCH)
		group.Go(func() error {
			return c.run(ctx, "image", "-binary", c.binary(program), "-file", fileOf(program),
				"-name", repository, "-version", tag, "-platforms", "linux/"+runtime.GOARCH, "-out", out)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	c.done(fmt.Sprintf("%d images", len(archives)), "packed", start)
	return archives, nil
}

// fileOf is where manifests expect a program.
func fileOf(program string) string {
	switch program {
	case build.JobSetManager, build.TrainerManager, "kueue":
		return "manager"
	}
	return program
}

func (c *Cluster) load(ctx context.Context, archives []string) error {
	start := time.Now()
	for _, archive := range archives {
		if err := c.run(ctx, "kind", "load", "image-archive", archive, "--name", c.Name); err != nil {
			return err
		}
	}
	c.done(fmt.Sprintf("%d images", len(archives)), "loaded", start)
	return nil
}
