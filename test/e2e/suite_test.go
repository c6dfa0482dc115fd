// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the specs of what people rely on. They run against the cluster of
// KUBECONFIG, or bring a local control plane up and take it down again.
package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the cluster that the suite brings up, below the
// repository's root. A cluster of `make local-up` is left alone.
const localDir = ".local-e2e"

var cluster *world.Cluster

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	// A condition that a healthy control plane meets in milliseconds may take long on
	// a machine that builds something beside it.
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(60 * time.Second)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	SetDefaultConsistentlyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "kueue-trainer e2e")
}

var _ = BeforeSuite(func(ctx context.Context) {
	var err error
	cluster, err = world.Open(ctx, localDir, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
})

// since marks specs of what this generation of Trainer and newer ones have, and older
// ones do not; there they are skipped.
func since(trainer string) Labels { return Label(sinceLabel + trainer) }

// core marks what every generation of Trainer has to get right; `make e2e-core-2.1` runs
// these specs on the oldest, but for the long ones, whose course is the same with every
// generation.
var (
	core = Label("core")
	long = Label("long")
)

// kindCore marks what every test run has on a kind cluster; the other specs run there when somebody
// asks for all.
var kindCore = Label("kind-core")

// localOnly skips specs that need the processes of a local control plane, and says why they do.
func localOnly(why string) {
	GinkgoHelper()
	if !cluster.Local() {
		Skip(why + "; run this on a cluster of make local-up")
	}
}

// until marks specs of what this generation of Trainer and older ones have, and newer
// ones do not.
func until(trainer string) Labels { return Label(untilLabel + trainer) }

const (
	sinceLabel = "since-trainer-"
	untilLabel = "until-trainer-"
)

var _ = BeforeEach(func(ctx context.Context) {
	served := trainerOf(ctx)
	for _, label := range CurrentSpecReport().Labels() {
		oldest, found := strings.CutPrefix(label, sinceLabel)
		if found && served < oldest {
			Skip("the cluster runs Trainer " + served)
		}
		newest, found := strings.CutPrefix(label, untilLabel)
		if found && served > newest {
			Skip("the cluster runs Trainer " + served)
		}
	}
})

// trainerOf names the generation of Trainer that the cluster runs; they sort by name.
func trainerOf(ctx context.Context) string {
	GinkgoHelper()
	trainer, err := cluster.Trainer(ctx)
	Expect(err).NotTo(HaveOccurred())
	return trainer
}

var _ = AfterSuite(func(ctx context.Context) {
	if cluster != nil {
		Expect(cluster.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})
