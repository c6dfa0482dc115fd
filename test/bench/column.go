// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// nodes is the number of GPU nodes. The half of them that the flavor is about has room for 3,300 pods.
const nodes = 60

// workers is how many TrainJobs kueue-trainer reconciles at a time by default, and Kueue's integration here.
var workers = func() int {
	var cfg config.Configuration
	config.Default(&cfg)
	return cfg.Controller.GroupKindConcurrency[config.TrainJobKind]
}()

// column is one way to have TrainJobs under Kueue's quotas.
type column struct {
	title, integration string
	// inTreeWorkers as `localcluster up` takes it.
	inTreeWorkers int
	// manager is the component that reconciles TrainJobs.
	manager string
}

var (
	inTree = column{title: fmt.Sprintf("in-tree, %d workers", workers), integration: world.InTree, inTreeWorkers: workers, manager: "kueue"}
	ours   = column{title: "kueue-trainer", integration: world.External, manager: "kueue-trainer"}
	// columns are those of the report: the one to compare with comes first.
	columns = []column{inTree, ours}
)

// flags are those of `localcluster up`.
func (c column) flags() []string {
	return []string{"--nodes", strconv.Itoa(nodes), "--integration", c.integration, "--in-tree-workers", strconv.Itoa(c.inTreeWorkers)}
}
