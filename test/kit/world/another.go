// SPDX-License-Identifier: Apache-2.0

package world

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"
)

// FreePort returns one of loopback that nobody listens at.
func FreePort() int {
	server := httptest.NewServer(nil)
	defer server.Close()
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// WriteConfig writes the configuration of a component of a local control plane to a file, with
// changes, for another process of it.
func (c *Cluster) WriteConfig(component, file string, changes map[string]any) error {
	data, err := os.ReadFile(filepath.Join(c.localDir, "config", component+".yaml"))
	if err != nil {
		return err
	}
	config, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err
	}
	merge, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	// JSON is YAML.
	if config, err = jsonpatch.MergePatch(config, merge); err != nil {
		return err
	}
	return os.WriteFile(file, config, 0o600)
}
