// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
)

// registry is where nothing can be pulled from: all images are loaded into the nodes.
const registry = "kueue-trainer.test"

// payload is the program of test/payload, which pods on the real kubelet run.
const payload = "payload"

// files are the components that images are made of, each of one file, and where manifests expect that.
var files = map[string]string{
	build.JobSetManager: "manager", build.TrainerManager: "manager", "kueue": "manager",
	"kwok": "kwok", build.KueueTrainer: build.KueueTrainer, payload: payload,
}

// image returns the image of a component. The tag says the release of one that has any, as
// images that are pulled do, and changes with the program, so that a Deployment is rolled out when
// it does; that of the payload stands in TrainJobs.
func (c *Cluster) image(ctx context.Context, component string) (repository, tag string, err error) {
	repository = registry + "/" + component
	if component == payload {
		return repository, "local", nil
	}
	content, err := os.ReadFile(c.binary(component))
	if err != nil {
		return "", "", err
	}
	tag = fmt.Sprintf("%x", sha256.Sum256(content))[:12]
	for _, bin := range c.binaries() {
		if bin.Name == program(component) && bin.Module != "" {
			module, err := c.Builder.Module(ctx, bin.Dir, bin.Module)
			return repository, module.Version + "-" + tag, err
		}
	}
	return repository, tag, nil
}

// program is the file name of a component's binary.
func program(component string) string {
	return build.Program(component, build.DefaultKubernetes(), build.DefaultTrainer())
}

// binary is where a component's program lies.
func (c *Cluster) binary(component string) string {
	return filepath.Join(c.Builder.BinDir(), program(component))
}

// binaries are what the images are made of, and the plugin for whoever uses the cluster.
func (c *Cluster) binaries() []build.Binary {
	wanted := sets.New(build.Plugin, "kubectl")
	for component := range files {
		wanted.Insert(program(component))
	}
	all := append(build.All(build.DefaultKubernetes(), build.DefaultTrainer()), build.Binary{Name: payload, Dir: ".", Package: "./test/payload"})
	return slices.DeleteFunc(all, func(b build.Binary) bool { return !wanted.Has(b.Name) })
}

// packImages makes an archive per component, each with nothing but its program, and returns where they lie.
func (c *Cluster) packImages(ctx context.Context) ([]string, error) {
	start := time.Now()
	var archives []string
	group, ctx := errgroup.WithContext(ctx)
	for component, file := range files {
		repository, tag, err := c.image(ctx, component)
		if err != nil {
			return nil, err
		}
		out := filepath.Join(c.Dir, "images", component)
		archives = append(archives, fmt.Sprintf("%s-linux-%s.tar", out, runtime.GOARCH))
		group.Go(func() error {
			return c.run(ctx, "image", "-binary", c.binary(component), "-file", file,
				"-name", repository, "-version", tag, "-platforms", "linux/"+runtime.GOARCH, "-out", out)
		})
	}
	err := group.Wait()
	if err == nil {
		c.done(fmt.Sprintf("%d images", len(archives)), "packed", start)
	}
	return archives, err
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
