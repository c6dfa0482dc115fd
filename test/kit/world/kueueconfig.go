// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// ConfigureKueue sets fields of Kueue's configuration, which it reads at its start, until restore.
func (c *Cluster) ConfigureKueue(ctx context.Context, set map[string]any) (restore func(context.Context) error, err error) {
	return c.configure(ctx, kueueConfig, set)
}

// RestartKueueWith sets fields of Kueue's configuration that hold from the next start of these
// components, and starts them again, until restore, which does so, too. Both return when kueue-trainer goes by them as well.
func (c *Cluster) RestartKueueWith(
	ctx context.Context, progress io.Writer, set map[string]any, components ...string,
) (restore func(context.Context) error, err error) {
	return c.restartWith(ctx, progress, kueueConfig, set, components...)
}

// RestartManagerWith sets fields of kueue-trainer's configuration and starts it again, and so does restore.
func (c *Cluster) RestartManagerWith(ctx context.Context, progress io.Writer, set map[string]any) (restore func(context.Context) error, err error) {
	return c.restartWith(ctx, progress, managerConfig, set, c.Manager())
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

func (c *Cluster) restartWith(
	ctx context.Context, progress io.Writer, of configFile, set map[string]any, components ...string,
) (func(context.Context) error, error) {
	restart := func(ctx context.Context) error {
		for _, component := range components {
			if err := c.Control(ctx, "restart", component, progress); err != nil {
				return err
			}
		}
		if of == kueueConfig {
			return c.awaitFollowed(ctx)
		}
		return nil
	}
	back, err := c.configure(ctx, of, set)
	if err == nil {
		err = restart(ctx)
	}
	return func(ctx context.Context) error { return errors.Join(back(ctx), restart(ctx)) }, err
}

// awaitFollowed waits until kueue-trainer, where it runs, goes by the configuration that Kueue has.
func (c *Cluster) awaitFollowed(ctx context.Context) error {
	manager := c.Manager()
	if processes, err := c.PIDs(); err != nil || processes[manager] == 0 || manager == "kueue" {
		return err
	}
	var config corev1.ConfigMap
	if err := c.Client.Get(ctx, kueueConfig.ObjectKey, &config); err != nil {
		return err
	}
	var health string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		// A manager that is starting does not answer yet.
		_, health, _ = c.AskManager(ctx, "metrics", "/debug/health", c.Config.BearerToken)
		return strings.Contains(health, "resourceVersion "+config.ResourceVersion+"\n"), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s to go by Kueue's configuration as of resourceVersion %s: %w; it says:\n%s", manager, config.ResourceVersion, err, health)
	}
	return nil
}

// configure sets fields of a configuration until restore.
func (c *Cluster) configure(ctx context.Context, of configFile, set map[string]any) (restore func(context.Context) error, err error) {
	var before string
	var invalid error
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}}
	err = TryChange(ctx, c.Client, config, func() {
		before = config.Data[of.file]
		changed, err := Configuration(before, set)
		config.Data[of.file], invalid = cmp.Or(changed, before), err
	})
	return func(ctx context.Context) error {
		return TryChange(ctx, c.Client, config, func() { config.Data[of.file] = cmp.Or(before, config.Data[of.file]) })
	}, errors.Join(err, invalid)
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

// FreePort returns one of loopback that nobody listens at.
func FreePort() int {
	server := httptest.NewServer(nil)
	defer server.Close()
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// WriteConfig writes a component's configuration to a file, with changes, for another process of it.
func (c *Cluster) WriteConfig(component, file string, changes map[string]any) error {
	data, err := os.ReadFile(filepath.Join(c.localDir, "config", component+".yaml"))
	if err != nil {
		return err
	}
	config, err := Configuration(string(data), changes)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(config), 0o600)
}
