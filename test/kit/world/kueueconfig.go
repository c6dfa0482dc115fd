// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// ConfigureKueue sets fields of Kueue's configuration, below those that it has, and returns what
// it was. Kueue itself reads it at its start.
func (c *Cluster) ConfigureKueue(ctx context.Context, set map[string]any) (before string, err error) {
	err = c.changeConfig(ctx, kueueConfig, func(content string) (string, error) {
		before = content
		return Configuration(content, set)
	})
	return before, err
}

// ConfigureManager sets fields of kueue-trainer's configuration, below those that it has, which reads
// it at its start.
func (c *Cluster) ConfigureManager(ctx context.Context, set map[string]any) error {
	return c.changeConfig(ctx, managerConfig, func(content string) (string, error) { return Configuration(content, set) })
}

// configFile is a configuration in a ConfigMap.
type configFile struct {
	client.ObjectKey
	file string
}

var (
	kueueConfig   = configFile{client.ObjectKey{Namespace: "kueue-system", Name: "kueue-manager-config"}, "controller_manager_config.yaml"}
	managerConfig = configFile{client.ObjectKey{Namespace: "kueue-trainer-system", Name: "kueue-trainer-config"}, "configuration.yaml"}
)

// Configuration is one with fields set, below those that it has.
func Configuration(content string, set map[string]any) (string, error) {
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(content), &fields); err != nil {
		return "", fmt.Errorf("reading a configuration: %w", err)
	}
	merge(fields, set)
	changed, err := yaml.Marshal(fields)
	return string(changed), err
}

// RestartKueueWith sets fields of Kueue's configuration that hold from the next start of these
// components, and starts them again, until restore, which does so, too.
func (c *Cluster) RestartKueueWith(
	ctx context.Context, progress io.Writer, set map[string]any, components ...string,
) (restore func(context.Context) error, err error) {
	before, err := c.ConfigureKueue(ctx, set)
	if err != nil {
		return func(context.Context) error { return nil }, err
	}
	restart := func(ctx context.Context) error {
		for _, component := range components {
			if err := c.Control(ctx, "restart", component, progress); err != nil {
				return err
			}
		}
		return nil
	}
	restore = func(ctx context.Context) error {
		return errors.Join(c.RestoreKueueConfig(ctx, before), restart(ctx))
	}
	return restore, restart(ctx)
}

// RestoreKueueConfig writes Kueue's configuration as ConfigureKueue has found it.
func (c *Cluster) RestoreKueueConfig(ctx context.Context, before string) error {
	return c.changeConfig(ctx, kueueConfig, func(string) (string, error) { return before, nil })
}

func (c *Cluster) changeConfig(ctx context.Context, of configFile, change func(string) (string, error)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var config corev1.ConfigMap
		if err := c.Client.Get(ctx, of.ObjectKey, &config); err != nil {
			return err
		}
		changed, err := change(config.Data[of.file])
		if err != nil || changed == config.Data[of.file] {
			return err
		}
		config.Data[of.file] = changed
		return c.Client.Update(ctx, &config)
	})
}

// merge sets fields, and leaves what set does not name.
func merge(fields, set map[string]any) {
	for name, value := range set {
		below, nested := value.(map[string]any)
		if have, ok := fields[name].(map[string]any); ok && nested {
			merge(have, below)
			continue
		}
		fields[name] = value
	}
}
