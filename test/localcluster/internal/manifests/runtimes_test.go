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
			in, err := Decode([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			want, err := Decode([]byte(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if err := ExplicitRetention(in); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(encode(t, want), encode(t, in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
