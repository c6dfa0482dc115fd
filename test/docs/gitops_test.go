// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

// What people are told to have Argo CD ignore is called what the manager calls it.
func TestGitOpsNamesWhatIsWritten(t *testing.T) {
	section := pages.Section(file(t, "docs/install.md"), "gitops")
	for _, ignored := range []string{
		fmt.Sprintf(`select(.name == %q or .name == %q)`, webhookconfig.Queued, webhookconfig.NotOwn),
		fmt.Sprintf(`select(.manager == %q)`, patch.Manager),
		patch.ManagerAnnotation,
	} {
		expect.That(t, strings.Contains(section, ignored), "docs/install.md does not name %s", ignored)
	}
}
