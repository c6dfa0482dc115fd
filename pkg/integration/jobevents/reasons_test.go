// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
)

// Every reason is explained where users look for it.
func TestEveryReasonIsDocumented(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	inttest.Must(t, err)
	docs, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "trainjobs.md"))
	inttest.Must(t, err)
	_, events, _ := strings.Cut(string(docs), "\n## Events\n")
	reasons := regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 20 {
		t.Fatalf("Only %d reasons are found in reasons.go", len(reasons))
	}
	for _, reason := range reasons {
		if !strings.Contains(events, "`"+reason[1]+"`") {
			t.Errorf("docs/trainjobs.md does not explain event %s", reason[1])
		}
	}
}

// Every event has a line in the log, which admins find by its reason.
func TestEveryReasonIsLogged(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	inttest.Must(t, err)
	for _, reason := range regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		if messages[reason[1]] == "" {
			t.Errorf("No message is logged of event %s", reason[1])
		}
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "logging.md"))
	inttest.Must(t, err)
	for reason, message := range messages {
		if row := "\n| `" + message + "` | 0 | `" + reason + "` |"; !strings.Contains(string(docs), row) {
			t.Errorf("docs/logging.md lacks the row %s", row)
		}
	}
}
