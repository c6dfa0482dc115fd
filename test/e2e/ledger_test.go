// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// openLedger watches what the pods of the spec ask for, and what their jobs are charged.
func (w *site) openLedger(ctx context.Context) {
	w.ledger = must(ledger.Watch(ctx, must(dynamic.NewForConfig(cluster.Config)), w.Namespace))
}

// Resources that specs record.
var (
	podResource      = corev1.SchemeGroupVersion.WithResource("pods")
	workloadResource = kueue.SchemeGroupVersion.WithResource("workloads")
	trainJobResource = trainer.GroupVersion.WithResource("trainjobs")
)

// record keeps every version of the spec's objects of some resources from now on.
func (w *site) record(ctx context.Context, resources ...schema.GroupVersionResource) *record.Recorder {
	var kinds []record.Kind
	for _, resource := range resources {
		kinds = append(kinds, record.Kind{GroupVersionResource: resource, Namespace: w.Namespace})
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	return must(record.Start(watching, must(dynamic.NewForConfig(cluster.Config)), kinds, nil))
}

// eventuallyWhole waits until all that has happened is recorded, of which nothing may be missing.
func eventuallyWhole(ctx context.Context, recorder *record.Recorder) {
	Eventually(ctx, recorder.CaughtUp).Should(Succeed())
	Expect(recorder.Gaps()).To(BeEmpty(), "no version was missed")
}

// versionsOf are what was recorded of one kind, in its type.
func versionsOf[T any](recorder *record.Recorder) (all []*T) {
	for _, v := range recorder.Versions() {
		all = append(all, read[T](v.Object))
	}
	return all
}

// read reads a stored object in its type.
func read[T any](obj *unstructured.Unstructured) *T {
	into := new(T)
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into)).To(Succeed())
	return into
}

// runsOutside says why pods of this spec run without quota on purpose: what the ledger
// finds is reported, and fails nothing.
func (w *site) runsOutside(why string) { w.outside = why }

// audit fails the spec where its pods asked for more than their jobs were charged for.
func (w *site) audit(ctx context.Context) {
	Eventually(ctx, w.ledger.CaughtUp).Should(Succeed())
	result := must(w.ledger.Check(ledger.Expectation{}))
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
	return &managerWrites{Audit: must(logs.OpenAudit(logOf("audit")))}
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
