// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
)

// Status prints one line per component.
func (c *Cluster) Status(ctx context.Context) error {
	if !c.state.exists() {
		c.say("no cluster in %s", c.Dir)
		return nil
	}
	c.say("%s: %s, kubeconfig %s", c.Dir, c.state.Settings, c.Kubeconfig())
	if err := c.sayVersions(ctx); err != nil {
		return err
	}
	all := c.components()
	rows := make([]string, len(all))
	var group sync.WaitGroup
	for i, comp := range all {
		group.Go(func() { rows[i] = c.statusRow(ctx, comp) })
	}
	group.Wait()
	table := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tHEALTH\tPORTS\tLOG")
	for _, row := range rows {
		fmt.Fprintln(table, row)
	}
	return table.Flush()
}

// sayVersions tells the releases of what people may choose.
func (c *Cluster) sayVersions(ctx context.Context) error {
	trainerModule, err := c.module(ctx, build.TrainerModule)
	if err != nil {
		return err
	}
	jobsetModule, err := c.module(ctx, build.JobSetModule)
	if err != nil {
		return err
	}
	c.say("Trainer %s, JobSet %s", trainerModule.Version, jobsetModule.Version)
	return nil
}

func (c *Cluster) statusRow(ctx context.Context, comp component) string {
	pid, state, health := "-", "not started", "-"
	if p := c.process(comp.name); p.PID != 0 {
		pid, state = fmt.Sprint(p.PID), "exited"
		if p.Alive() {
			state, health = "running", c.healthWord(ctx, comp)
		}
	}
	var ports []string
	for _, purpose := range comp.ports {
		ports = append(ports, fmt.Sprintf("%s=%d", purpose, c.port(comp.name, purpose)))
	}
	return strings.Join([]string{comp.name, pid, state, health, strings.Join(ports, ","), c.logFile(comp.name)}, "\t")
}

func (c *Cluster) healthWord(ctx context.Context, comp component) string {
	if c.healthy(ctx, comp) != nil {
		return "unhealthy"
	}
	return "healthy"
}
