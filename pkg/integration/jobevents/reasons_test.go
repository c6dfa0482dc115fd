// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every reason is explained where users look for it.
func TestEveryReasonIsDocumented(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "trainjobs.md"))
	if err != nil {
		t.Fatal(err)
	}
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
