// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExplicitRetention(t *testing.T) {
	const runtime = "{kind: ClusterTrainingRuntime, spec: {template: {spec: "
	cases := map[string]struct{ in, want string }{
		"a claim without a policy gets JobSet's default": {
			in:   runtime + "{volumeClaimPolicies: [{templates: [{metadata: {name: a}}]}]}}}}",
			want: runtime + "{volumeClaimPolicies: [{templates: [{metadata: {name: a}}], retentionPolicy: {whenDeleted: Delete}}]}}}}",
		},
		"a policy that is set stays": {
			in:   runtime + "{volumeClaimPolicies: [{retentionPolicy: {whenDeleted: Retain}}]}}}}",
			want: runtime + "{volumeClaimPolicies: [{retentionPolicy: {whenDeleted: Retain}}]}}}}",
		},
		"a runtime without claims stays": {
			in:   runtime + "{replicatedJobs: [{name: node}]}}}}",
			want: runtime + "{replicatedJobs: [{name: node}]}}}}",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decode(t, tc.in)
			err := ExplicitRetention(got)
			if diff := cmp.Diff(decode(t, tc.want), got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}
