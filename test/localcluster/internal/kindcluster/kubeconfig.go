// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"context"
	"fmt"
	"os/exec"

	"k8s.io/client-go/tools/clientcmd"
)

// writeKubeconfig writes the contexts that a local cluster has: the admin, and a user with the
// rights in namespace jobs, whom the admin impersonates.
func (c *Cluster) writeKubeconfig(ctx context.Context) error {
	content, err := exec.CommandContext(ctx, c.tool("kind"), "get", "kubeconfig", "--name", c.Name).Output()
	if err != nil {
		return fmt.Errorf("kubeconfig of cluster %s: %w", c.Name, err)
	}
	config, err := clientcmd.Load(content)
	if err != nil {
		return err
	}
	admin := config.Contexts[config.CurrentContext]
	user := config.AuthInfos[admin.AuthInfo].DeepCopy()
	user.Impersonate = "user"
	config.AuthInfos["user"] = user
	config.Contexts["admin"] = admin
	config.Contexts["user"] = admin.DeepCopy()
	config.Contexts["user"].AuthInfo = "user"
	delete(config.Contexts, config.CurrentContext)
	config.CurrentContext = "admin"
	return clientcmd.WriteToFile(*config, c.Kubeconfig())
}
