// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestExpectedRetry(t *testing.T) {
	forbidden := func(reason string) error { return apierrors.NewForbidden(trainJobs, "llm", errors.New(reason)) }
	cases := map[string]struct {
		err  error
		want bool
	}{
		"somebody else was faster": {err: apierrors.NewConflict(trainJobs, "llm", errors.New("changed")), want: true},
		"Trainer has not seen the last pod go": {
			err: fmt.Errorf("stopping: %w", forbidden(
				"spec.podTemplateOverrides: Forbidden: PodTemplateOverrides cannot be modified when the JobSet's ReplicatedJob node is still active")),
			want: true,
		},
		"Trainer refuses for good":  {err: forbidden("must not have envs for the node containers")},
		"a text that only looks so": {err: errors.New("it is still active")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := expectedRetry(tc.err); got != tc.want {
				t.Errorf("expectedRetry(%v) = %t, want %t", tc.err, got, tc.want)
			}
		})
	}
}
