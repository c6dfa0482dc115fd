// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/dynamic"

	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
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

// logOf is the log of a component of a local control plane, or the audit log.
func logOf(component string) string {
	return filepath.Join(cluster.LocalDir(), "logs", component+".log")
}

// managerWrites are those of the manager in the audit log.
type managerWrites struct {
	*logs.Audit
	seen []string
}

func openManagerWrites() *managerWrites {
	log, err := logs.OpenAudit(logOf("audit"))
	Expect(err).NotTo(HaveOccurred())
	return &managerWrites{Audit: log}
}

// notWrites are resources whose requests change nothing that TrainJobs are made of: what people are told, and
// questions that have to be asked by a create.
var notWrites = []string{"events", "selfsubjectreviews", "tokenreviews", "subjectaccessreviews"}

// all returns what was written since, or was tried to, as "verb resource name code". Dry runs do not count.
func (w *managerWrites) all() []string {
	Expect(w.Events(func(e *logs.Event) {
		of := e.ObjectRef
		if e.User.Username == "kueue-trainer" && !e.DryRun() && !slices.Contains([]string{"get", "list"}, e.Verb) && !slices.Contains(notWrites, of.Resource) {
			w.seen = append(w.seen, fmt.Sprint(e.Verb, " ", of.Resource, " ", of.Name, " ", e.ResponseStatus.Code))
		}
	})).To(Succeed())
	return slices.Clone(w.seen)
}
