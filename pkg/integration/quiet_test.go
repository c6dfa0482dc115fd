// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestExpectedRetry(t *testing.T) {
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(jobclient.Resource, "llm", errors.New(reason))
	}
	cases := map[string]struct {
		err  error
		want bool
	}{
		"somebody else was faster": {err: apierrors.NewConflict(jobclient.Resource, "llm", errors.New("changed")), want: true},
		"Trainer has not seen the last pod go": {
			err: fmt.Errorf("stopping: %w", forbidden(
				"spec.podTemplateOverrides: Forbidden: PodTemplateOverrides cannot be modified when the JobSet's ReplicatedJob node is still active")),
			want: true,
		},
		"the Workload is gone": {
			err: fmt.Errorf("releasing: %w", apierrors.NewNotFound(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl")), want: true,
		},
		"there are no Workloads": {
			err: apierrors.NewGenericServerResponse(404, "patch", schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", "404 page not found", 0, true),
		},
		"something else is gone":    {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "team")},
		"Trainer refuses for good":  {err: forbidden("must not have envs for the node containers")},
		"a text that only looks so": {err: errors.New("it is still active")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected expectedRetry", tc.want, expectedRetry(tc.err)) })
	}
}

func TestQuiet(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, "wl", errors.New("changed"))
	cases := map[string]struct {
		err       error
		wantError bool
	}{
		"a conflict is retried and no error":     {err: conflict},
		"pods that are left are no error":        {err: errStillActive},
		"an answer that stays wrong is one":      {err: errors.New("forbidden"), wantError: true},
		"so is one that wraps no expected retry": {err: apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")), wantError: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := quiet(funcr.NewJSON(func(line string) { out.WriteString(line + "\n") }, funcr.Options{Verbosity: 2}))
			log.WithName("controller").WithValues("a", "b").Error(tc.err, "Reconciling")
			got := !strings.Contains(out.String(), `"level":2`)
			expect.That(t, got == tc.wantError, "Logged as an error: %t, want %t:\n%s", got, tc.wantError, out.String())
			expect.That(t, strings.Contains(out.String(), `"a":"b"`), "The values are lost:\n%s", out.String())
		})
	}
}
