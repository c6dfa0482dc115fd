// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/dynamic"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
)

// openLedger watches what the pods of the spec ask for, and what their jobs are charged.
func (w *site) openLedger(ctx context.Context) {
	api, err := dynamic.NewForConfig(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	w.ledger, err = ledger.Watch(ctx, api, w.Namespace)
	Expect(err).NotTo(HaveOccurred())
}

// runsOutside says why pods of this spec run without quota on purpose: what the ledger
// finds is reported, and fails nothing.
func (w *site) runsOutside(why string) { w.outside = why }

// audit fails the spec where its pods asked for more than their jobs were charged for.
func (w *site) audit(ctx context.Context) {
	Eventually(ctx, w.ledger.CaughtUp).Should(Succeed())
	result, err := w.ledger.Check(ledger.Expectation{})
	Expect(err).NotTo(HaveOccurred())
	for _, v := range result.Tolerated {
		AddReportEntry("ledger, tolerated", v.String())
	}
	for _, v := range result.Violations {
		AddReportEntry("ledger", v.String())
	}
	if w.outside != "" || cluster.Integration != world.External {
		GinkgoWriter.Printf("ledger: %d violations, not held against the spec: %s\n", len(result.Violations), w.outside)
		return
	}
	Expect(result.Violations).To(BeEmpty(), "pods asked for more than their jobs were charged for")
}

// componentLog is the log of a component of a local control plane, from when it was opened.
type componentLog struct {
	path  string
	start int64
}

func openLog(component string) *componentLog {
	l := &componentLog{path: filepath.Join(cluster.LocalDir(), "logs", component+".log")}
	info, err := os.Stat(l.path)
	Expect(err).NotTo(HaveOccurred())
	l.start = info.Size()
	return l
}

// lines returns what was logged since, but for a line that is being written.
func (l *componentLog) lines() []string {
	file, err := os.Open(l.path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	_, err = file.Seek(l.start, io.SeekStart)
	Expect(err).NotTo(HaveOccurred())
	content, err := io.ReadAll(file)
	Expect(err).NotTo(HaveOccurred())
	lines := strings.SplitAfter(string(content), "\n")
	return lines[:len(lines)-1]
}

// auditLog is the audit log.
type auditLog struct{ *componentLog }

func openAuditLog() *auditLog { return &auditLog{openLog("audit")} }

// notWrites are resources whose requests change nothing that TrainJobs are made of: what
// people are told, who leads, and questions that have to be asked by a create.
var notWrites = []string{"events", "leases", "selfsubjectreviews", "tokenreviews", "subjectaccessreviews"}

// writes returns what a user has written since, or tried to, as "verb resource name code".
// Dry runs do not count.
func (l *auditLog) writes(user string) []string {
	var out []string
	for _, line := range l.lines() {
		var e auditEvent
		Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
		if e.User.Username == user && e.isWrite() {
			out = append(out, e.String())
		}
	}
	return out
}

// auditEvent is what the specs need of audit.k8s.io/v1 Event.
type auditEvent struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      struct{ Namespace, Name, Resource, Subresource string }
	ResponseStatus struct{ Code json.Number }
}

func (e *auditEvent) isWrite() bool {
	u, err := url.Parse(e.RequestURI)
	return err == nil && !u.Query().Has("dryRun") &&
		!slices.Contains([]string{"get", "list", "watch"}, e.Verb) && !slices.Contains(notWrites, e.ObjectRef.Resource)
}

func (e *auditEvent) String() string {
	return strings.Join([]string{e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, e.ResponseStatus.Code.String()}, " ")
}
