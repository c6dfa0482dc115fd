// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the specs of what people rely on. They run against the cluster of
// KUBECONFIG, or bring a local control plane up and take it down again.
package e2e

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/discovery"

	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the suite's LOCAL_DIR, below the repository's root. A cluster of `make local-up` is left alone.
const localDir = ".local-e2e"

// cluster is what the specs of this process talk to. opened is the same in the process that opened it.
var cluster, opened *world.Cluster

func TestE2E(t *testing.T) { specs.Run(t, "kueue-trainer e2e", time.Minute) }

// Specs run in several processes on one cluster, but for those that are Serial. Each process has
// as many nodes as a cluster of `make local-up`, so that no spec waits for another's pods.
var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	processes, _ := GinkgoConfiguration()
	opened = must(world.Open(ctx, localDir, GinkgoWriter, "--nodes", strconv.Itoa(8*processes.ParallelTotal)))
	expectVersions(ctx)
	return []byte(opened.Kubeconfig)
}, func(kubeconfig []byte) {
	cluster = must(world.Use(string(kubeconfig)))
})

// expectVersions expects the versions that make was told: these specs would say nothing of them otherwise.
func expectVersions(ctx context.Context) {
	if trainer := os.Getenv("TRAINER"); trainer != "" {
		Expect(opened.Trainer(ctx)).To(Equal(trainer), "Trainer")
	}
	if kubernetes := os.Getenv("KUBERNETES"); kubernetes != "" {
		version := must(must(discovery.NewDiscoveryClientForConfig(opened.Config)).ServerVersion())
		Expect(version.GitVersion).To(HavePrefix("v"+kubernetes+"."), "Kubernetes")
	}
}

// since marks specs of what this generation of Trainer and newer ones have, until those of this and older ones.
func since(trainer string) Labels { return Label(sinceLabel + trainer) }
func until(trainer string) Labels { return Label(untilLabel + trainer) }

const (
	sinceLabel = "since-trainer-"
	untilLabel = "until-trainer-"
)

// jobSetTells marks what goes by JobSet's event of a Job that it was refused: 0.10, beside Trainer 2.1, records none.
var jobSetTells = since(world.Trainer22)

// core marks what every generation of Trainer has to get right; `make e2e-core-2.1` runs these specs on the oldest, but
// for the long ones, whose course is the same with every generation.
var (
	core = Label("core")
	long = Label("long")
)

// kindCore marks what every test run has on a kind cluster; the other specs run there when somebody asks for all.
var kindCore = Label("kind-core")

// docsPage marks specs that follow a page of the docs. Pages name their objects: these specs are Serial.
var docsPage = Label("docs-page")

// Specs of "control" stop components, change their configuration or read their logs, those of "local" read what components
// serve on this machine, and those of "external" are about what comes with kueue-trainer.
var _ = BeforeEach(func(ctx context.Context) {
	for _, label := range CurrentSpecReport().Labels() {
		oldest, isSince := strings.CutPrefix(label, sinceLabel)
		newest, isUntil := strings.CutPrefix(label, untilLabel)
		switch {
		case (label == "control" || label == "local") && !cluster.Local():
			Skip("it needs the processes of a local control plane: run it on a cluster of make local-up")
		case label == "external" && cluster.Integration != world.External:
			Skip("it is about what comes with kueue-trainer")
		case isSince && trainerOf(ctx) < oldest, isUntil && trainerOf(ctx) > newest:
			Skip("the cluster runs Trainer " + trainerOf(ctx))
		}
	}
})

// trainerOf names the generation of Trainer that the cluster runs; they sort by name.
func trainerOf(ctx context.Context) string {
	return must(cluster.Trainer(ctx))
}

var _ = SynchronizedAfterSuite(func() {}, func(ctx context.Context) {
	if opened != nil {
		Expect(opened.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})
