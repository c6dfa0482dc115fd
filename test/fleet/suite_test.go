// SPDX-License-Identifier: Apache-2.0

// Package fleet holds the specs of TrainJobs that MultiKueue runs in other clusters. They run on
// the fleet of KUBECONFIG, or bring one up and take it down again.
package fleet

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// fleetDir is where the suite brings its fleet up. That of `make fleet-up` is left alone.
const fleetDir = ".fleet-e2e"

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 5 * time.Minute

// long marks specs that take above 20 seconds.
var long = Label("long")

// fleet is what the specs of this process talk to. started is the one that the suite brought up, in
// the process that did.
var fleet, started *world.Fleet

func TestFleet(t *testing.T) {
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts()
	// Three control planes share the machine.
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	SetDefaultConsistentlyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "kueue-trainer fleet")
}

// Specs run in several processes on one fleet, but for those that are Serial.
var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	if kubeconfig := os.Getenv("KUBECONFIG"); kubeconfig != "" {
		return []byte(filepath.Dir(kubeconfig))
	}
	root, err := world.Root()
	Expect(err).NotTo(HaveOccurred())
	processes, _ := GinkgoConfiguration()
	started, err = world.StartFleet(ctx, filepath.Join(root, fleetDir), GinkgoWriter, "--nodes", strconv.Itoa(8*processes.ParallelTotal))
	Expect(err).NotTo(HaveOccurred())
	return []byte(filepath.Dir(started.Kubeconfig()))
}, func(dir []byte) {
	var err error
	fleet, err = world.UseFleet(string(dir))
	Expect(err).NotTo(HaveOccurred())
})

var _ = SynchronizedAfterSuite(func() {}, func(ctx context.Context) {
	if started != nil {
		Expect(started.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})
