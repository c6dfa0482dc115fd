// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What only time cures is tried again in its time, and nobody has to know; 0 is for all else.
func TestRetryIn(t *testing.T) {
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(jobclient.Resource, "llm", errors.New(reason))
	}
	missing := func(group, resource string) error {
		return fmt.Errorf("preparing: %w", apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: resource}, "gone"))
	}
	cases := map[string]struct {
		err  error
		want time.Duration
	}{
		"somebody else was faster": {err: apierrors.NewConflict(jobclient.Resource, "llm", errors.New("changed")), want: retrySoon},
		"Trainer has not seen the last pod go": {
			err: fmt.Errorf("stopping: %w", forbidden(
				"spec.podTemplateOverrides: Forbidden: PodTemplateOverrides cannot be modified when the JobSet's ReplicatedJob node is still active")),
			want: retrySlowly,
		},
		"pods are left":                     {err: errStillActive, want: retrySlowly},
		"the Workload is gone":              {err: missing("kueue.x-k8s.io", "workloads"), want: retrySoon},
		"the namespace is about to go":      {err: inTerminating(), want: retryTerminating},
		"there is no WorkloadPriorityClass": {err: missing("", "WorkloadPriorityClass"), want: retryClass},
		"there is no PriorityClass":         {err: missing("", "PriorityClass"), want: retryClass},
		"there are no Workloads":            {err: apierrors.NewGenericServerResponse(404, "patch", schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", "404 page not found", 0, true)},
		"something else is gone":            {err: missing("", "namespaces")},
		"Trainer refuses for good":          {err: forbidden("must not have envs for the node containers")},
		"a text that only looks so":         {err: errors.New("it is still active")},
		"nothing is wrong":                  {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected retry", tc.want, retryIn(tc.err)) })
	}
}

// inTerminating is the API server's answer where something is created in a namespace that is being deleted.
func inTerminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestQuiet(t *testing.T) {
	for err, wantError := range map[error]bool{errStillActive: false, errors.New("forbidden"): true} {
		var out bytes.Buffer
		log := quiet(funcr.NewJSON(func(line string) { out.WriteString(line + "\n") }, funcr.Options{Verbosity: 2}))
		log.WithName("controller").WithValues("a", "b").Error(err, "Reconciling")
		expect.Same(t, "Logged as an error: "+err.Error(), wantError, !strings.Contains(out.String(), `"level":2`))
		expect.That(t, strings.Contains(out.String(), `"a":"b"`), "The values are lost:\n%s", out.String())
	}
}

// going is a Workload that is deleted and stays.
func going(wl *kueue.Workload) {
	wl.DeletionTimestamp, wl.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"test/hold"}
}

func TestStillAdmitted(t *testing.T) {
	foreign := inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "b" })
	type live = []client.Object
	tests := map[string]struct {
		live live
		want bool
	}{
		"it is":                           {live{inttest.AdmittedOf("a")}, true},
		"it waits":                        {live{inttest.WorkloadOf(inttest.Job("a"))}, false},
		"the Workload is being deleted":   {live{inttest.AdmittedOf("a", going)}, false},
		"the admission is a former job's": {live{inttest.AdmittedOf("b")}, false},
		"there is no Workload":            {nil, false},
		"somebody else's has its name":    {live{foreign}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := stillAdmitted(t.Context(), inttest.Fake(tc.live...).Build(), inttest.Job("a"))
			expect.That(t, err == nil && got == tc.want, "stillAdmitted() = %t, %v; want %t", got, err, tc.want)
		})
	}
}

func TestConfirm(t *testing.T) {
	other := func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "other" }
	provisioned := func(request string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: kueue.CheckStateReady,
				PodSetUpdates: []kueue.PodSetUpdate{{Name: "node", Annotations: map[string]string{"request": request}}}}}
		}
	}
	type live = []client.Object
	tests := map[string]struct {
		cached *kueue.Workload
		live   live
		want   error
	}{
		"a check adds the same to pods":  {inttest.AdmittedOf("a", provisioned("1")), live{inttest.AdmittedOf("a", provisioned("1"))}, nil},
		"it adds what it did not before": {inttest.AdmittedOf("a", provisioned("1")), live{inttest.AdmittedOf("a", provisioned("2"))}, errOutdated},
		"the admission stands":           {inttest.AdmittedOf("a"), live{inttest.AdmittedOf("a")}, nil},
		"it is gone":                     {inttest.AdmittedOf("a"), live{inttest.AdmittedOf("a", kit.Isnt(kueue.WorkloadAdmitted, ""))}, errOutdated},
		"it is another one":              {inttest.AdmittedOf("a"), live{inttest.AdmittedOf("a", other)}, errOutdated},
		"the Workload is gone":           {inttest.AdmittedOf("a"), nil, errOutdated},
		"the Workload is being deleted":  {inttest.AdmittedOf("a"), live{inttest.AdmittedOf("a", going)}, errOutdated},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := confirm(t.Context(), inttest.Fake(tc.live...).Build(), tc.cached)
			expect.That(t, errors.Is(got, tc.want), "confirm() = %v, want %v", got, tc.want)
		})
	}
}

func TestOneGenerationForAReconcile(t *testing.T) {
	r, _ := newReconciler(t)
	r.deps.trainer = testenv.Served(t, trainjob.Trainer21)
	deps := r.deps.of(expect.Must(r.deps.trainer.Served())(t))
	r.deps.trainer.Set(t.Context(), trainjob.Trainer23, nil)
	expect.That(t, deps.Field == patch.Of(trainjob.Trainer21) && deps.Runtimes.Served == trainjob.Trainer21,
		"What began with 2.1 goes on with field %s and runtimes of %s", deps.Field.Path(), deps.Runtimes.Served)
}
