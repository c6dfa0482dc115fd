// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text := expect.Must(os.ReadFile(filepath.Join(path...)))(t)
	return string(text)
}

// reasons are those of reasons.go.
func reasons(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, reason := range regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(read(t, "reasons.go"), -1) {
		found = append(found, reason[1])
	}
	expect.Need(t, len(found) >= 20, "Only %d reasons are found in reasons.go", len(found))
	return found
}

// Every reason is explained where users look for it.
func TestEveryReasonIsDocumented(t *testing.T) {
	_, events, _ := strings.Cut(read(t, "..", "..", "..", "docs", "trainjobs.md"), "\n## Events\n")
	for _, reason := range reasons(t) {
		expect.That(t, strings.Contains(events, "`"+reason+"`"), "docs/trainjobs.md does not explain event %s", reason)
	}
}

// Every event has a line in the log, which admins find by its reason.
func TestEveryReasonIsLogged(t *testing.T) {
	for _, reason := range reasons(t) {
		expect.That(t, messages[reason] != "", "No message is logged of event %s", reason)
	}
	docs := read(t, "..", "..", "..", "docs", "logging.md")
	for reason, message := range messages {
		row := "\n| `" + message + "` | 0 | `" + reason + "` |"
		expect.That(t, strings.Contains(docs, row), "docs/logging.md lacks the row %s", row)
	}
}
