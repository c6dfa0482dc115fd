// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// newCommand gives the command. Its flags say where things are; what the manager
// does is said by the configuration file alone.
func newCommand() *cobra.Command {
	var configFile string
	logging := zap.Options{}
	cmd := &cobra.Command{
		Use:           "kueue-trainer",
		Short:         "Manager that brings Kubeflow TrainJobs under Kueue's quotas",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
			cfg, err := managerconfig.Load(configFile)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg)
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "configuration file; without it, the defaults")
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	logging.BindFlags(flags)
	config.RegisterFlags(flags)
	cmd.Flags().AddGoFlagSet(flags)
	return cmd
}

// run starts the manager and returns when ctx ends or something fails.
func run(ctx context.Context, cfg *managerconfig.Configuration) error {
	if err := managerconfig.ApplyFeatureGates(cfg.FeatureGates); err != nil {
		return err
	}
	effective, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	ctrl.Log.WithName("setup").Info("Starting", "configuration", string(effective))

	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	// One bucket for all kinds; without it each kind would have one of its own.
	if qps := *cfg.ClientConnection.QPS; qps >= 0 {
		restConfig.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, int(*cfg.ClientConnection.Burst))
	}
	options, err := managerOptions(cfg)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	return start(ctx, mgr, cfg)
}

// start sets the integration up once certificates are there, and runs the manager.
func start(ctx context.Context, mgr ctrl.Manager, cfg *managerconfig.Configuration) error {
	if err := integration.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	certsReady, err := manageCertificates(mgr, cfg)
	if err != nil {
		return err
	}
	ready := &readiness{setUp: make(chan struct{})}
	if err := addProbes(mgr, ready); err != nil {
		return err
	}
	options, err := integrationOptions(cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-certsReady:
		case <-ctx.Done():
			return
		}
		if ready.checks, err = integration.Setup(ctx, mgr, options); err != nil {
			stop(err)
			return
		}
		close(ready.setUp)
	}()
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != context.Canceled {
		return cause
	}
	return nil
}

func integrationOptions(cfg *managerconfig.Configuration) (integration.Options, error) {
	selector, err := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector)
	if err != nil {
		return integration.Options{}, fmt.Errorf("managedJobsNamespaceSelector: %w", err)
	}
	rules := make([]podset.TolerationRule, 0, len(cfg.TolerationRules))
	for _, rule := range cfg.TolerationRules {
		rules = append(rules, podset.TolerationRule(rule))
	}
	return integration.Options{
		ManageJobsWithoutQueueName:   cfg.ManageJobsWithoutQueueName,
		ManagedJobsNamespaceSelector: selector,
		WaitForPodsReady:             cfg.WaitForPodsReady,
		LabelKeysToCopy:              cfg.Integrations.LabelKeysToCopy,
		ObjectRetentionPolicies:      cfg.ObjectRetentionPolicies,
		TolerationRules:              rules,
		Namespace:                    cfg.Namespace,
		Concurrency:                  cfg.Controller.GroupKindConcurrency[managerconfig.TrainJobKind],
	}, nil
}
