// SPDX-License-Identifier: Apache-2.0

// Package monitoring asks a real Prometheus, which scrapes the managers of a local control plane,
// everything that dashboards and alerts ask. `make monitoring-test` builds it and runs this.
package monitoring

import (
	"context"
	"flag"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the cluster that the suite brings up. That of `make local-up` is left
// alone.
const localDir = ".local-monitoring"

var churnFor = flag.Duration("churn", 3*time.Minute, "how long jobs come and go before the manager is killed")

var (
	cluster *world.Cluster
	root    string
)

func TestMonitoring(t *testing.T) { specs.Run(t, "kueue-trainer monitoring", time.Minute) }

var _ = BeforeSuite(func(ctx context.Context) {
	root = specs.Root()
	cluster = must(world.Open(ctx, localDir, GinkgoWriter))
	Expect(cluster.Local()).To(BeTrue(), "the managers of %s are no processes of make local-up", cluster.Kubeconfig)
})

var _ = AfterSuite(func(ctx context.Context) {
	if cluster != nil {
		Expect(cluster.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})

// must returns a value, and fails the spec where there is an error.
func must[T any](value T, err error) T {
	Expect(err).NotTo(HaveOccurred())
	return value
}
