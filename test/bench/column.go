// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// workers is how many TrainJobs kueue-trainer reconciles at a time by default.
var workers = func() int {
	var cfg config.Configuration
	config.Default(&cfg)
	return cfg.Controller.GroupKindConcurrency[config.TrainJobKind]
}()

// column is one way to have TrainJobs under Kueue's quotas.
type column struct {
	// name is also that of the flag's value and in the raw numbers.
	name string
	// title is for people.
	title       string
	integration string
	// inTreeWorkers as `localcluster up` takes it.
	inTreeWorkers int
}

// allColumns are those of the report: the one to compare with comes first, ours last.
var allColumns = []column{
	{name: "in-tree", title: "in-tree as shipped", integration: world.InTree},
	{name: fmt.Sprintf("in-tree-%d", workers), title: fmt.Sprintf("in-tree, %d workers", workers), integration: world.InTree, inTreeWorkers: workers},
	{name: "external", title: "kueue-trainer", integration: world.External},
}

// flags are those of `localcluster up`.
func (c column) flags() []string {
	return []string{
		"--nodes", strconv.Itoa(nodes), "--integration", c.integration, "--in-tree-workers", strconv.Itoa(c.inTreeWorkers),
	}
}

// integrators are the components that integrate TrainJobs with Kueue.
func (c column) integrators() []string {
	if c.integration == world.InTree {
		return []string{"kueue"}
	}
	return []string{"kueue", "kueue-trainer"}
}

// manager is the last of them, which reconciles TrainJobs.
func (c column) manager() string { return c.integrators()[len(c.integrators())-1] }

func names(columns []column) string {
	var all []string
	for _, c := range columns {
		all = append(all, c.name)
	}
	return strings.Join(all, ",")
}

// columnsOf returns the columns of a comma-separated list, in our order.
func columnsOf(list string) ([]column, error) {
	wanted := strings.Split(list, ",")
	var found []column
	for _, c := range allColumns {
		if slices.Contains(wanted, c.name) {
			found = append(found, c)
		}
	}
	if len(found) != len(wanted) {
		return nil, fmt.Errorf("columns are %s", names(allColumns))
	}
	return found, nil
}

// columnOf returns a column by its name.
func columnOf(name string) column {
	i := slices.IndexFunc(allColumns, func(c column) bool { return c.name == name })
	if i < 0 {
		return column{name: name, title: name}
	}
	return allColumns[i]
}

func titleOf(name string) string { return columnOf(name).title }

func integrators(name string) []string { return columnOf(name).integrators() }

// manager is the component that reconciles TrainJobs.
func manager(name string) string { return columnOf(name).manager() }
