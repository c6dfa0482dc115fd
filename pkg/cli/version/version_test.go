// SPDX-License-Identifier: Apache-2.0

package version

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// parts are of one generation of Trainer, in order.
func parts(changes ...func([]Part)) []Part {
	all := []Part{{Name: "Kueue", Version: "v0.19.2"}, {Name: "JobSet", Version: "v0.12.0"}, {Name: "Trainer", Version: "v2.3.0", Generation: "2.3"}, {Name: "kueue-trainer", Version: "v0.1.0"}}
	for _, change := range changes {
		change(all)
	}
	return all
}

func breaks(message string) []Problem { return []Problem{{Breaks: true, Message: message}} }

func warns(message string) []Problem { return []Problem{{Message: message}} }

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		// plugin is v0.1.0 unless it says another.
		plugin   string
		parts    []Part
		unseen   []string
		together Together
		problems []Problem
		code     int
	}{
		"what was made for each other":              {plugin: "v0.1.3", parts: parts(), together: Yes},
		"a plugin of a checkout with any manager":   {plugin: "v0.0.0-20261122183337-abc", parts: parts(), together: Yes},
		"a cluster whose Deployments are not there": {parts: parts(func(p []Part) { p[1].Version, p[3].Version = "", "" }), together: Unknown},
		"a Trainer that tells its generation alone": {parts: parts(func(p []Part) { p[2].Version = "" }), together: Yes},
		"no manager": {
			parts: parts(func(p []Part) { p[3].Version, p[3].Missing = "", true }), together: No, code: exit.Findings,
			problems: breaks("kueue-trainer is not installed"),
		},
		"a checkout whose manager may not be seen": {
			plugin: "v0.0.0-20261122183337-abc", parts: parts(func(p []Part) { p[3].Version, p[3].unseen = "", true }), unseen: []string{"deployments.apps"},
			together: Unknown, code: exit.Unseen,
		},
		"a Trainer whose CRD may not be seen": {parts: parts(func(p []Part) { p[2].Generation, p[2].unseen = "", true }), unseen: []string{"crds"}, together: Yes},
		"a JobSet that is not of such a Trainer": {
			parts: parts(func(p []Part) { p[2].Generation, p[2].Version = "", "v2.2.1" }), together: No, code: exit.Warnings,
			problems: warns("JobSet is v0.12.0, and Trainer requires 0.11"),
		},
		"a Trainer before 2.1 whose CRD may not be seen": {
			parts: parts(func(p []Part) { p[2].Generation, p[2].Version = "", "v2.0.0" }), together: No, code: exit.Findings,
			problems: breaks("Trainer is of a generation that kueue-trainer does not know"),
		},
		"a Trainer of which nothing may be seen": {
			parts: parts(func(p []Part) { p[2].Generation, p[2].Version = "", "" }), unseen: []string{"deployments.apps"}, together: Unknown, code: exit.Unseen,
		},
		"a Trainer whose controller was not upgraded": {
			parts: parts(func(p []Part) { p[2].Version = "v2.1.0" }), together: No, code: exit.Warnings,
			problems: warns("Trainer's controller is v2.1.0, and its CRD serves TrainJobs of 2.3: one of them was not upgraded"),
		},
		"a Trainer that is newer than all that are known": {
			parts: parts(func(p []Part) { p[2].Version = "v2.4.0" }), together: No, code: exit.Warnings,
			problems: warns("Trainer is v2.4.0, and kueue-trainer is made for 2.1 to 2.3 and tested with them only"),
		},
		"another Kueue": {
			parts: parts(func(p []Part) { p[0].Version = "v0.18.1" }), together: No, code: exit.Warnings,
			problems: warns("Kueue is v0.18.1, and kueue-trainer is made for 0.19 and tested with it only"),
		},
		"a candidate of another Kueue": {
			parts: parts(func(p []Part) { p[0].Version = "v0.20.0-rc.1" }), together: No, code: exit.Warnings,
			problems: warns("Kueue is v0.20.0-rc.1, and kueue-trainer is made for 0.19 and tested with it only"),
		},
		"a candidate of another Trainer": {
			parts: parts(func(p []Part) { p[2].Version = "v2.4.0-rc.0" }), together: No, code: exit.Warnings,
			problems: warns("Trainer is v2.4.0-rc.0, and kueue-trainer is made for 2.1 to 2.3 and tested with them only"),
		},
		"a candidate of the release that is wanted": {parts: parts(func(p []Part) { p[0].Version = "v0.19.3-rc.0" }), together: Yes},
		"builds of no release":                      {parts: parts(func(p []Part) { p[0].Version, p[3].Version = "20260714", "v0.0.0-20261122183337-abc" }), together: Unknown},
		"no Kueue": {
			parts: parts(func(p []Part) { p[0].Version, p[0].Missing = "", true }), together: No, code: exit.Findings,
			problems: breaks("Kueue is not installed"),
		},
		"an older JobSet than Trainer requires": {
			parts: parts(func(p []Part) { p[1].Version = "v0.10.1" }), together: No, code: exit.Warnings,
			problems: warns("JobSet is v0.10.1, and Trainer requires 0.12"),
		},
		"the JobSet of an older Trainer": {parts: parts(func(p []Part) {
			p[1].Version, p[2].Version, p[2].Generation = "v0.10.1", "v2.1.0", "2.1"
		}), together: Yes},
		"a Trainer before 2.1": {
			parts: parts(func(p []Part) { p[2].Version, p[2].Generation = "v2.0.0", "unknown" }), together: No, code: exit.Findings,
			problems: breaks("Trainer is of a generation that kueue-trainer does not know"),
		},
		"a plugin of another release": {
			plugin: "v0.2.0", parts: parts(), together: No, code: exit.Warnings,
			problems: warns("kueue-trainer is v0.1.0, and this plugin of 0.2"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.plugin == "" {
				tc.plugin = "v0.1.0"
			}
			r := &Report{Plugin: Plugin{Version: tc.plugin}, Parts: tc.parts, Unseen: tc.unseen}
			judge(r)
			expect.Same(t, "Unexpected answer whether they go together", tc.together, r.Together)
			expect.Same(t, "Unexpected problems", tc.problems, r.Problems, cmpopts.IgnoreFields(Problem{}, "Remedy"))
			expect.Same(t, "Unexpected exit code", tc.code, exit.Code(r.err()))
			for _, p := range r.Problems {
				expect.That(t, p.Remedy != "", "No remedy for %q", p.Message)
			}
		})
	}
}

func TestManagerInstalled(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Manager.Namespace, Name: cluster.Manager.Deployment, Labels: map[string]string{cluster.VersionLabel: "v0.1.0"},
	}}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cluster.Manager.Webhook}}
	deployments, webhooks := "deployments.apps", "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	cases := map[string]struct {
		objects []client.Object
		unseen  []string
		want    Part
	}{
		"a Deployment": {objects: []client.Object{deployment}, want: Part{Version: "v0.1.0"}},
		"a webhook of a manager that runs beside": {objects: []client.Object{webhook}},
		"neither":                              {want: Part{Missing: true}},
		"a webhook alone may be seen":          {objects: []client.Object{webhook}, unseen: []string{deployments}},
		"no webhook, and it alone may be seen": {unseen: []string{deployments}, want: Part{unseen: true}},
		"Deployments alone may be seen":        {objects: []client.Object{webhook}, unseen: []string{webhooks}, want: Part{unseen: true}},
		"nothing may be seen":                  {objects: []client.Object{deployment, webhook}, unseen: []string{deployments, webhooks}, want: Part{unseen: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := kit.Fake(kit.Scheme(), tc.objects...).WithInterceptorFuncs(kit.RefusingGet(func(object client.Object, _ client.ObjectKey) error {
				kind := webhooks
				if _, is := object.(*appsv1.Deployment); is {
					kind = deployments
				}
				if slices.Contains(tc.unseen, kind) {
					return kit.Forbidden(kind)
				}
				return nil
			})).Build()
			l := &loader{client: c}
			got := l.part(t.Context(), cluster.Manager)
			expect.NoError(t, l.err)
			tc.want.Name = cluster.Manager.Name
			expect.Same(t, "Unexpected part", tc.want, got, cmp.AllowUnexported(Part{}))
			expect.Same(t, "Unexpected kinds", tc.unseen, l.unseen)
		})
	}
}
