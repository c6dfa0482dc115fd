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

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	inttest.Must(t, err)
	return string(text)
}

// reasons are those of reasons.go.
func reasons(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, reason := range regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(read(t, "reasons.go"), -1) {
		found = append(found, reason[1])
	}
	if len(found) < 20 {
		t.Fatalf("Only %d reasons are found in reasons.go", len(found))
	}
	return found
}

// Every reason is explained where users look for it.
func TestEveryReasonIsDocumented(t *testing.T) {
	_, events, _ := strings.Cut(read(t, "..", "..", "..", "docs", "trainjobs.md"), "\n## Events\n")
	for _, reason := range reasons(t) {
		if !strings.Contains(events, "`"+reason+"`") {
			t.Errorf("docs/trainjobs.md does not explain event %s", reason)
		}
	}
}

// Every event has a line in the log, which admins find by its reason.
func TestEveryReasonIsLogged(t *testing.T) {
	for _, reason := range reasons(t) {
		if messages[reason] == "" {
			t.Errorf("No message is logged of event %s", reason)
		}
	}
	docs := read(t, "..", "..", "..", "docs", "logging.md")
	for reason, message := range messages {
		if row := "\n| `" + message + "` | 0 | `" + reason + "` |"; !strings.Contains(docs, row) {
			t.Errorf("docs/logging.md lacks the row %s", row)
		}
	}
}
