// SPDX-License-Identifier: Apache-2.0

// Package kindcluster makes a kind cluster with JobSet, Trainer and Kueue in pods, as their
// projects ship them, kueue-trainer by its chart, and fake GPU nodes of two sorts: kwok's, of
// which there are many, and one with a real kubelet.
package kindcluster

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
)

//go:embed files/kind.yaml
var kindConfig []byte

// DefaultImage is kind's node image of the Kubernetes that the local cluster runs, of the notes of
// the kind release that hack/tools has.
const DefaultImage = "kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed"

// Cluster is one kind cluster.
type Cluster struct {
	build.Builder
	Name      string
	Image     string
	Dir       string
	FakeNodes int
}

// Kubeconfig is the file with the contexts admin and user.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Up makes the cluster, or brings what is there to how it should be.
func (c *Cluster) Up(ctx context.Context) {
	start := time.Now()
	attempt.Succeed(os.MkdirAll(c.Dir, 0o755))
	c.Builder.Build(ctx, c.binaries())
	c.packImages(ctx)
	c.create(ctx)
	c.loadImages(ctx)
	c.install(ctx, kube.NewClient(c.Kubeconfig()))
	c.Done("cluster "+c.Name, "up", start)
}

// Down deletes the cluster and what was written for it.
func (c *Cluster) Down(ctx context.Context) {
	attempt.Succeed(c.deleteNodes(ctx))
	for _, name := range []string{"kubeconfig", "kind.yaml", "values.yaml", "images", "manifests", "logs"} {
		attempt.Succeed(os.RemoveAll(filepath.Join(c.Dir, name)))
	}
}

func (c *Cluster) deleteNodes(ctx context.Context) error {
	return c.run(ctx, "kind", "delete", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig())
}

// create makes the nodes unless they are there.
func (c *Cluster) create(ctx context.Context) {
	out, err := exec.CommandContext(ctx, c.tool("kind"), "get", "clusters", "--quiet").Output()
	if err != nil {
		attempt.Fail("asking kind for its clusters: %w; is Docker running?", err)
	}
	if slices.Contains(strings.Fields(string(out)), c.Name) {
		c.Say("cluster %s exists: installing what is missing", c.Name)
		c.writeKubeconfig(ctx)
		return
	}
	start := time.Now()
	config := filepath.Join(c.Dir, "kind.yaml")
	attempt.Succeed(os.WriteFile(config, kindConfig, 0o644))
	if err := c.run(ctx, "kind", "create", "cluster", "--name", c.Name, "--image", c.Image, "--config", config,
		"--wait", "3m", "--kubeconfig", c.Kubeconfig()); err != nil {
		// Else the next one takes what is half made for a cluster.
		attempt.Succeed(errors.Join(err, c.deleteNodes(context.WithoutCancel(ctx))))
	}
	c.Done("nodes", "ready", start)
	c.writeKubeconfig(ctx)
}

func (c *Cluster) tool(name string) string { return filepath.Join(c.Repo, "bin", name) }

func (c *Cluster) run(ctx context.Context, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.tool(tool), args...)
	cmd.Dir = c.Repo
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, out)
	}
	return nil
}

// writeKubeconfig writes the contexts that a local cluster has: the admin, and a user with the
// rights in namespace jobs, whom the admin impersonates.
func (c *Cluster) writeKubeconfig(ctx context.Context) {
	cmd := exec.CommandContext(ctx, c.tool("kind"), "get", "kubeconfig", "--name", c.Name)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	content, err := cmd.Output()
	if err != nil {
		attempt.Fail("kubeconfig of cluster %s: %w\n%s`make kind-down` removes one that is half made", c.Name, err, &stderr)
	}
	config := attempt.Must(clientcmd.Load(content))
	admin := config.Contexts[config.CurrentContext]
	user := config.AuthInfos[admin.AuthInfo].DeepCopy()
	user.Impersonate = "user"
	config.AuthInfos["user"] = user
	config.Contexts["admin"] = admin
	config.Contexts["user"] = admin.DeepCopy()
	config.Contexts["user"].AuthInfo = "user"
	delete(config.Contexts, config.CurrentContext)
	config.CurrentContext = "admin"
	attempt.Succeed(clientcmd.WriteToFile(*config, c.Kubeconfig()))
}

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
func (c *Cluster) image(ctx context.Context, component string) (repository, tag string) {
	repository = registry + "/" + component
	if component == payload {
		return repository, "local"
	}
	tag = fmt.Sprintf("%x", sha256.Sum256(attempt.Must(os.ReadFile(c.binary(component)))))[:12]
	for _, bin := range c.binaries() {
		if bin.Name == program(component) && bin.Module != "" {
			return repository, c.Module(ctx, bin.Dir, bin.Module).Version + "-" + tag
		}
	}
	return repository, tag
}

func program(component string) string {
	return build.Program(component, build.DefaultKubernetes, build.DefaultTrainer)
}

func (c *Cluster) binary(component string) string {
	return filepath.Join(c.BinDir(), program(component))
}

// binaries are what the images are made of, and the plugin for whoever uses the cluster.
func (c *Cluster) binaries() []build.Binary {
	wanted := sets.New(build.Plugin, "kubectl")
	for component := range files {
		wanted.Insert(program(component))
	}
	all := append(build.All(build.DefaultKubernetes, build.DefaultTrainer), build.Binary{Name: payload, Dir: ".", Package: "./test/payload"})
	return slices.DeleteFunc(all, func(b build.Binary) bool { return !wanted.Has(b.Name) })
}

// packImages makes an archive per component, each with nothing but its program.
func (c *Cluster) packImages(ctx context.Context) {
	start := time.Now()
	attempt.ForEach(ctx, slices.Collect(maps.Keys(files)), func(ctx context.Context, component string) {
		repository, tag := c.image(ctx, component)
		attempt.Succeed(c.run(ctx, "image", "-binary", c.binary(component), "-file", files[component],
			"-name", repository, "-version", tag, "-platforms", "linux/"+runtime.GOARCH, "-out", filepath.Join(c.Dir, "images", component)))
	})
	c.Done(fmt.Sprintf("%d images", len(files)), "packed", start)
}

func (c *Cluster) loadImages(ctx context.Context) {
	start := time.Now()
	for component := range files {
		archive := fmt.Sprintf("%s-linux-%s.tar", filepath.Join(c.Dir, "images", component), runtime.GOARCH)
		attempt.Succeed(c.run(ctx, "kind", "load", "image-archive", archive, "--name", c.Name))
	}
	c.Done(fmt.Sprintf("%d images", len(files)), "loaded", start)
}
