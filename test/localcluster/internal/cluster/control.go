// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// grace is how long a component may take to end by itself: as long as in the shipped
// Deployments of Kueue and JobSet.
const grace = 10 * time.Second

var (
	// ownEntries of LOCAL_DIR are made by up and removed by down.
	ownEntries = []string{"certs", "config", "etcd", "kubeconfig", "kubeconfigs", "manifests", stateFile, stateFile + ".new"}
	// keptEntries stay: the logs tell what happened, and the lock is held.
	keptEntries = []string{"logs", lockFile}
)

// Start starts one component and waits until it is healthy.
func (c *Cluster) Start(ctx context.Context, name string) error {
	return c.withComponent(name, func(comp component) error {
		if p := c.process(name); p.Alive() {
			c.say("%s is running already, pid %d", name, p.PID)
			return nil
		}
		return c.start(ctx, comp)
	})
}

// Stop asks one component to end and waits until it has.
func (c *Cluster) Stop(ctx context.Context, name string) error {
	return c.withComponent(name, func(comp component) error { return c.stop(ctx, comp) })
}

// Kill ends one component as a crash would.
func (c *Cluster) Kill(ctx context.Context, name string) error {
	return c.withComponent(name, func(component) error {
		p := c.process(name)
		if !p.Alive() {
			c.say("%s is not running", name)
			return nil
		}
		if err := p.Kill(ctx); err != nil {
			return fmt.Errorf("failed to kill %s: %w", name, err)
		}
		c.say("%s killed", name)
		return nil
	})
}

// Restart stops one component, starts it and waits until it is healthy.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	return c.withComponent(name, func(comp component) error { return c.restart(ctx, comp) })
}

func (c *Cluster) restart(ctx context.Context, comp component) error {
	if err := c.stop(ctx, comp); err != nil {
		return err
	}
	return c.start(ctx, comp)
}

func (c *Cluster) withComponent(name string, do func(component) error) error {
	release, err := c.lockExisting()
	if err != nil {
		return err
	}
	defer release()
	comp, err := c.find(name)
	if err != nil {
		return err
	}
	return do(comp)
}

// inTier does something with all components of a tier at the same time.
func (c *Cluster) inTier(ctx context.Context, t tier, do func(context.Context, component) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, comp := range c.components() {
		if comp.tier == t {
			group.Go(func() error { return do(ctx, comp) })
		}
	}
	return group.Wait()
}

// ensure starts a component that does not run, and restarts one whose program has
// changed.
func (c *Cluster) ensure(ctx context.Context, comp component) error {
	p := c.process(comp.name)
	if !p.Alive() {
		return c.start(ctx, comp)
	}
	hash, err := c.watchedHash(comp)
	if err != nil {
		return err
	}
	if hash == p.Binary {
		return c.waitHealthy(ctx, comp)
	}
	c.say("%-24s has a new binary: restarting", comp.name)
	return c.restart(ctx, comp)
}

func (c *Cluster) start(ctx context.Context, comp component) error {
	if path := c.binary(comp); missing(path) {
		return fmt.Errorf("cannot start %s: %s does not exist, run `localcluster build`", comp.name, path)
	}
	start := time.Now()
	if err := c.readConfigMap(ctx, comp); err != nil {
		return err
	}
	hash, err := c.watchedHash(comp)
	if err != nil {
		return err
	}
	p, err := process.Start(c.spec(comp))
	if err != nil {
		return err
	}
	if err := c.record(comp.name, Process{Process: p, Binary: hash}); err != nil {
		return err
	}
	if err := c.waitHealthy(ctx, comp); err != nil {
		return err
	}
	c.done(comp.name, "ready", start)
	return nil
}

func (c *Cluster) stop(ctx context.Context, comp component) error {
	p := c.process(comp.name)
	if !p.Alive() {
		return nil
	}
	start := time.Now()
	killed, err := p.Terminate(ctx, grace)
	if err != nil {
		return fmt.Errorf("failed to stop %s: %w", comp.name, err)
	}
	if killed {
		c.done(comp.name, "did not stop by itself and was killed", start)
	} else {
		c.done(comp.name, "stopped", start)
	}
	return nil
}

// Down stops every process that up has started, and removes everything but the logs.
func (c *Cluster) Down(ctx context.Context) error {
	if !c.state.exists() {
		c.say("no cluster in %s", c.Dir)
		return nil
	}
	release, err := c.Lock()
	if err != nil {
		return err
	}
	defer release()
	for t := managers; t >= storage; t-- {
		if err := c.inTier(ctx, t, c.stop); err != nil {
			return err
		}
	}
	for _, entry := range ownEntries {
		err = errors.Join(err, os.RemoveAll(c.path(entry)))
	}
	if err == nil {
		c.say("down; the logs are in %s", c.path("logs"))
	}
	return err
}

// watchedHash identifies a program by its content: the go command also touches
// programs that have not changed.
func (c *Cluster) watchedHash(comp component) (string, error) {
	if !comp.watchBinary {
		return "", nil
	}
	content, err := os.ReadFile(c.binary(comp))
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}
