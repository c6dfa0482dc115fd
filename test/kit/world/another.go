// SPDX-License-Identifier: Apache-2.0

package world

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	config, err := Configuration(string(data), changes)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(config), 0o600)
}
