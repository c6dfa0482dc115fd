// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// runtimes are those that files define and, if there is one, those of a cluster.
type runtimes struct {
	*manifest.Runtimes

	// namespace is for what names none.
	namespace string
	// cluster is nil when none is asked.
	cluster client.Reader
}
