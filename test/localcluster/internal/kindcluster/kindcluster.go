// SPDX-License-Identifier: Apache-2.0

// Package kindcluster makes a kind cluster with JobSet, Trainer and Kueue in pods, as their
// projects ship them, kueue-trainer by its chart, and fake GPU nodes of two sorts: kwok's, of
// which there are many, and one with a real kubelet.
package kindcluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

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
	// Name is kind's.
	Name string
	// Image of the nodes.
	Image string
	// Dir holds kubeconfig, images and rendered manifests.
	Dir string
	// FakeNodes is the number of kwok's GPU nodes.
	FakeNodes int
	Builder   build.Builder
	Out       io.Writer
}

// Kubeconfig is the file with the contexts admin and user.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Dir, "kubeconfig") }

// Up makes the cluster, or brings what is there to how it should be.
func (c *Cluster) Up(ctx context.Context) error {
	start := time.Now()
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if err := c.Builder.Build(ctx, c.binaries()); err != nil {
		return err
	}
	images, err := c.packImages(ctx)
	if err != nil {
		return err
	}
	if err := c.create(ctx); err != nil {
		return err
	}
	if err := c.load(ctx, images); err != nil {
		return err
	}
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	if err := c.install(ctx, api); err != nil {
		return err
	}
	c.done("cluster "+c.Name, "up", start)
	return nil
}

// Down deletes the cluster and what was written for it.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.run(ctx, "kind", "delete", "cluster", "--name", c.Name, "--kubeconfig", c.Kubeconfig()); err != nil {
		return err
	}
	var failures error
	for _, name := range []string{"kubeconfig", "kind.yaml", "values.yaml", "images", "manifests", "logs"} {
		failures = errors.Join(failures, os.RemoveAll(filepath.Join(c.Dir, name)))
	}
	return failures
}

// create makes the nodes unless they are there.
func (c *Cluster) create(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, c.tool("kind"), "get", "clusters", "--quiet").Output()
	if err != nil {
		return fmt.Errorf("asking kind for its clusters: %w; is Docker running?", err)
	}
	if slices.Contains(strings.Fields(string(out)), c.Name) {
		c.say("cluster %s exists: installing what is missing", c.Name)
		return c.writeKubeconfig(ctx)
	}
	start := time.Now()
	config := filepath.Join(c.Dir, "kind.yaml")
	if err := os.WriteFile(config, kindConfig, 0o644); err != nil {
		return err
	}
	if err := c.run(ctx, "kind", "create", "cluster", "--name", c.Name, "--image", c.Image, "--config", config,
		"--wait", "3m", "--kubeconfig", c.Kubeconfig()); err != nil {
		return err
	}
	c.done("nodes", "ready", start)
	return c.writeKubeconfig(ctx)
}

// tool is a program that make builds.
func (c *Cluster) tool(name string) string { return filepath.Join(c.Builder.Repo, "bin", name) }

// run runs a tool and shows what it says where it fails.
func (c *Cluster) run(ctx context.Context, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.tool(tool), args...)
	cmd.Dir = c.Builder.Repo
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", tool, strings.Join(args, " "), err, out)
	}
	return nil
}

func (c *Cluster) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

func (c *Cluster) done(what, verb string, start time.Time) {
	c.say("%-24s %s in %s", what, verb, time.Since(start).Round(100*time.Millisecond))
}

// writeKubeconfig writes the contexts that a local cluster has: the admin, and a user with the
// rights in namespace jobs, whom the admin impersonates.
func (c *Cluster) writeKubeconfig(ctx context.Context) error {
	content, err := exec.CommandContext(ctx, c.tool("kind"), "get", "kubeconfig", "--name", c.Name).Output()
	if err != nil {
		return fmt.Errorf("kubeconfig of cluster %s: %w", c.Name, err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return err
	}
	admin := config.Contexts[config.CurrentContext]
	user := config.AuthInfos[admin.AuthInfo].DeepCopy()
	user.Impersonate = "user"
	config.AuthInfos["user"] = user
	config.Contexts["admin"] = admin
	config.Contexts["user"] = admin.DeepCopy()
	config.Contexts["user"].AuthInfo = "user"
	delete(config.Contexts, config.CurrentContext)
	config.CurrentContext = "admin"
	return clientcmd.WriteToFile(*config, c.Kubeconfig())
}
