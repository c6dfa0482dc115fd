// SPDX-License-Identifier: Apache-2.0

// Command kueue-trainer is the manager that brings TrainJobs under Kueue's quotas.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/certificates"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/uninstall"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/heap"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

// gcPercent lets the heap grow by half before it is collected, where Go's default doubles
// it: the caches are most of it, and there is little garbage. But it may grow by gcFloor bytes in any case. GOGC
// overrides both.
const (
	gcPercent = 50
	gcFloor   = 40 << 20
)

func main() {
	if os.Getenv("GOGC") == "" {
		heap.Pace(gcPercent, gcFloor)
	}
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "kueue-trainer:", err)
		os.Exit(1)
	}
}

// newCommand returns the command. Its flags say where things are; what the manager
// does is said by the configuration file alone.
func newCommand() *cobra.Command {
	var configFile string
	options := zap.Options{}
	cmd := &cobra.Command{
		Use:           "kueue-trainer",
		Short:         "Manager that brings Kubeflow TrainJobs under Kueue's quotas",
		Version:       version.Get().String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logging.SetDefault(logging.New(zap.UseFlagOptions(&options)))
			cfg, err := managerconfig.Load(configFile)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "configuration file; without it, the defaults")
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	options.BindFlags(flags)
	config.RegisterFlags(flags)
	cmd.Flags().AddGoFlagSet(flags)
	// The image has this binary alone, and the chart's hook needs the command.
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cmd.AddCommand(uninstall.NewCommand(connect, streams))
	return cmd
}

// connect is for uninstall, which finds the cluster as the manager does.
func connect() (client.WithWatch, error) {
	found, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return installed.Connect(found)
}

func run(ctx context.Context, cfg *managerconfig.Configuration) error {
	effective, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	ctrl.Log.WithName("setup").Info("Started kueue-trainer", "version", version.Get().String(), "configuration", string(effective))

	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	limit(restConfig, cfg)
	certs := newCertificates(cfg)
	certificate, files, err := servingCertificate(cfg, certs)
	if err != nil {
		return err
	}
	recorder := newRecorder(cfg, certificate)
	restConfig.Wrap(recorder.CountWrites)
	scarce := heap.Scarce(heap.SetLimit(), tellScarcity)
	mgr, err := ctrl.NewManager(restConfig, managerOptions(cfg, restConfig, certificate, scarce))
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if files != nil {
		if err := mgr.Add(files); err != nil {
			return err
		}
	}
	kueue := kueueconfig.NewFollower(mgr.GetAPIReader(), cfg.KueueConfigMap, cfg.Overrides)
	kueue.ReadFirst(ctx) // before anything goes by it
	kueue.Recorder = mgr.GetEventRecorder("kueue-trainer")
	if err := mgr.Add(kueue); err != nil {
		return err
	}
	return start(ctx, mgr, cfg, integrationOptions(cfg, kueue, recorder, scarce), certs)
}

// limit has one bucket for the requests of all kinds; without it each kind would have one of its own.
func limit(config *rest.Config, cfg *managerconfig.Configuration) {
	if qps := *cfg.ClientConnection.QPS; qps >= 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, int(*cfg.ClientConnection.Burst))
	}
}

// unlimited returns the same for the lease: behind the requests of thousands of jobs it would be lost.
func unlimited(config *rest.Config) *rest.Config {
	lease := rest.CopyConfig(config)
	lease.RateLimiter, lease.QPS = nil, -1
	return lease
}

// tellScarcity logs that the manager has to be slower for want of memory, or has not any more.
func tellScarcity(scarce bool) {
	log := ctrl.Log.WithName("memory")
	if scarce {
		log.Info("Ran short of memory, so TrainJobs are looked at one by one", "remedy", "raise resources.limits.memory of the Deployment")
		return
	}
	log.Info("Had memory again for several TrainJobs at a time")
}

func start(ctx context.Context, mgr ctrl.Manager, cfg *managerconfig.Configuration, options integration.Options, certs *certificates.Certificates) error {
	if err := caches.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if certs != nil {
		if err := certs.AddTo(mgr); err != nil {
			return fmt.Errorf("adding the serving certificates: %w", err)
		}
	}
	ready := &readiness{setUp: make(chan struct{}), webhooks: func() healthz.Checker { return mgr.GetWebhookServer().StartedChecker() }}
	if err := addProbes(mgr, ready); err != nil {
		return err
	}
	if err := addDebugPages(mgr, cfg, ready); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		if !certs.Await(ctx) {
			return
		}
		var err error
		if ready.checks, err = integration.Setup(ctx, mgr, options); err != nil {
			stop(err)
			return
		}
		close(ready.setUp)
	}()
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func integrationOptions(cfg *managerconfig.Configuration, kueue *kueueconfig.Follower, recorder *metrics.Recorder, scarce func() bool) integration.Options {
	return integration.Options{
		Kueue:           kueue,
		TolerationRules: cfg.TolerationRules,
		StartTimeout:    cfg.StartTimeout.Duration,
		WaitForJobSet:   cfg.WaitForJobSet.Duration,
		Namespace:       cfg.Namespace,
		Concurrency:     cfg.Controller.GroupKindConcurrency[managerconfig.TrainJobKind],
		UserLabel:       cfg.Metrics.UserLabel,
		Scarce:          scarce,
		Metrics:         recorder,
	}
}
