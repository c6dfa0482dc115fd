// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is how bad a finding is.
type Severity int

const (
	// Info is worth to know; nothing has to be done.
	Info Severity = iota + 1
	// Warning is for what works now, or for most, and may not later or for others.
	Warning
	// Error is for what keeps TrainJobs from running, or lets them run beside the quotas.
	Error
)

// String names the severity.
func (s Severity) String() string {
	return [...]string{Info: "info", Warning: "warning", Error: "error"}[s]
}

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is something that a check saw.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason names the kind of finding, for scripts: LocalQueueToNowhere.
	Reason string `json:"reason"`
	// Object that is concerned, as "Kind name" or "Kind namespace/name".
	Object string `json:"object"`
	// Problem is what is wrong, Effect what it causes. Both are sentences.
	Problem string `json:"problem"`
	Effect  string `json:"effect,omitempty"`
	// Advice says what the commands cannot, such as what to decide before.
	Advice string `json:"advice,omitempty"`
	// Commands fix it when they are pasted into a shell, in this order.
	Commands []string `json:"commands,omitempty"`
}

// sortFindings puts the worst first.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Object, b.Object))
	})
}

// count returns the number of findings of a severity.
func count(findings []Finding, severity Severity) int {
	n := 0
	for _, f := range findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// object names an object of a namespace for people.
func object(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return fmt.Sprintf("%s %s/%s", kind, namespace, name)
}
