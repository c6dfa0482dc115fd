// SPDX-License-Identifier: Apache-2.0

// Package fleet holds the specs of TrainJobs that MultiKueue runs in other clusters. They run on
// the fleet of KUBECONFIG, or bring one up and take it down again.
package fleet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// fleetDir is where the suite brings its fleet up. That of `make fleet-up` is left alone.
const fleetDir = ".fleet-e2e"

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 5 * time.Minute

var (
	// core marks what every change has to pass.
	core = Label("core")
	// long marks specs that take above 20 seconds.
	long = Label("long")
)

var fleet *world.Fleet

// Three control planes share the machine.
func TestFleet(t *testing.T) { specs.Run(t, "kueue-trainer fleet", 2*time.Minute) }

var _ = BeforeSuite(func(ctx context.Context) {
	if kubeconfig := os.Getenv("KUBECONFIG"); kubeconfig != "" {
		fleet = must(world.UseFleet(filepath.Dir(kubeconfig)))
		return
	}
	fleet = must(world.StartFleet(ctx, filepath.Join(specs.Root(), fleetDir), GinkgoWriter))
})

var _ = AfterSuite(func(ctx context.Context) {
	if fleet != nil {
		Expect(fleet.Stop(ctx, GinkgoWriter)).To(Succeed())
	}
})

// must returns a value, and fails the spec where there is an error.
func must[T any](value T, err error) T {
	Expect(err).NotTo(HaveOccurred())
	return value
}
