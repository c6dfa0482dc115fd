// SPDX-License-Identifier: Apache-2.0

package version

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// judged is a plugin v0.1.0, unless it says another, with parts, and what is said of them.
type judged struct {
	plugin   string
	parts    []Part
	unseen   []string
	together Together
	problems []Problem
	code     int
}

// of are parts of one generation of Trainer, in order, after changes, which go together.
func of(changes ...func(kueue, jobSet, trainer, manager *Part)) judged {
	all := []Part{{Name: "Kueue", Version: "v0.19.2"}, {Name: "JobSet", Version: "v0.12.0"}, {Name: "Trainer", Version: "v2.3.0", Generation: "2.3"}, {Name: "kueue-trainer", Version: "v0.1.0"}}
	for _, change := range changes {
		change(&all[0], &all[1], &all[2], &all[3])
	}
	return judged{plugin: "v0.1.0", parts: all, together: Yes}
}

// with has another plugin.
func (j judged) with(plugin string) judged {
	j.plugin = plugin
	return j
}

func (j judged) breaks(message string) judged {
	j.together, j.code, j.problems = No, exit.Findings, []Problem{{Breaks: true, Message: message}}
	return j
}

func (j judged) warns(message string) judged {
	j.together, j.code, j.problems = No, exit.Warnings, []Problem{{Message: message}}
	return j
}

// unknown has nobody know whether they go together, and perhaps for want of a right.
func (j judged) unknown(code int, unseen ...string) judged {
	j.together, j.code, j.unseen = Unknown, code, unseen
	return j
}

func TestJudge(t *testing.T) {
	const checkout = "v0.0.0-20261122183337-abc"
	kueue := func(version string) judged { return of(func(k, _, _, _ *Part) { k.Version = version }) }
	trainer := func(version, generation string) judged {
		return of(func(_, _, tr, _ *Part) { tr.Version, tr.Generation = version, generation })
	}
	unseenCRD := of(func(_, _, tr, _ *Part) { tr.Generation, tr.unseen = "", true })
	unseenCRD.unseen = []string{"crds"}
	expect.Rows(t, map[string]judged{
		"what was made for each other":              of().with("v0.1.3"),
		"a plugin of a checkout with any manager":   of().with(checkout),
		"a cluster whose Deployments are not there": of(func(_, js, _, m *Part) { js.Version, m.Version = "", "" }).unknown(0),
		"a Trainer that tells its generation alone": trainer("", "2.3"),
		"no manager": of(func(_, _, _, m *Part) { m.Version, m.Missing = "", true }).breaks("kueue-trainer is not installed"),
		"a checkout whose manager may not be seen":        of(func(_, _, _, m *Part) { m.Version, m.unseen = "", true }).with(checkout).unknown(exit.Unseen, "deployments.apps"),
		"a Trainer whose CRD may not be seen":             unseenCRD,
		"a JobSet that is not of such a Trainer":          trainer("v2.2.1", "").warns("JobSet is v0.12.0, and Trainer requires 0.11"),
		"a Trainer before 2.1 whose CRD may not be seen":  trainer("v2.0.0", "").breaks("Trainer is of a generation that kueue-trainer does not know"),
		"a Trainer of which nothing may be seen":          trainer("", "").unknown(exit.Unseen, "deployments.apps"),
		"a Trainer whose controller was not upgraded":     trainer("v2.1.0", "2.3").warns("Trainer's controller is v2.1.0, and its CRD serves TrainJobs of 2.3: one of them was not upgraded"),
		"a Trainer that is newer than all that are known": trainer("v2.4.0", "2.3").warns("Trainer is v2.4.0, and kueue-trainer is made for 2.1 to 2.3 and tested with them only"),
		"such a Trainer's JobSet, of which nobody knows": of(func(_, js, tr, _ *Part) { js.Version, tr.Version = "v0.13.0", "v2.4.0" }).
			warns("Trainer is v2.4.0, and kueue-trainer is made for 2.1 to 2.3 and tested with them only"),
		"another Kueue":                             kueue("v0.18.1").warns("Kueue is v0.18.1, and kueue-trainer is made for 0.19 and tested with it only"),
		"a candidate of another Kueue":              kueue("v0.20.0-rc.1").warns("Kueue is v0.20.0-rc.1, and kueue-trainer is made for 0.19 and tested with it only"),
		"a candidate of another Trainer":            trainer("v2.4.0-rc.0", "2.3").warns("Trainer is v2.4.0-rc.0, and kueue-trainer is made for 2.1 to 2.3 and tested with them only"),
		"a candidate of the release that is wanted": kueue("v0.19.3-rc.0"),
		"builds of no release":                      of(func(k, _, _, m *Part) { k.Version, m.Version = "20260714", checkout }).unknown(0),
		"no Kueue":                                  of(func(k, _, _, _ *Part) { k.Version, k.Missing = "", true }).breaks("Kueue is not installed"),
		"an older JobSet than Trainer requires":     of(func(_, js, _, _ *Part) { js.Version = "v0.10.1" }).warns("JobSet is v0.10.1, and Trainer requires 0.12"),
		"the JobSet of an older Trainer":            of(func(_, js, tr, _ *Part) { js.Version, tr.Version, tr.Generation = "v0.10.1", "v2.1.0", "2.1" }),
		"a Trainer before 2.1":                      trainer("v2.0.0", "unknown").breaks("Trainer is of a generation that kueue-trainer does not know"),
		"a plugin of another release":               of().with("v0.2.0").warns("kueue-trainer is v0.1.0, and this plugin of 0.2"),
	}, func(t *testing.T, tc judged) {
		r := &Report{Plugin: version.Info{Version: tc.plugin}, Parts: tc.parts, Unseen: tc.unseen}
		judge(r)
		expect.Same(t, "Unexpected answer whether they go together", tc.together, r.Together)
		expect.Same(t, "Unexpected problems", tc.problems, r.Problems, cmpopts.IgnoreFields(Problem{}, "Remedy"))
		expect.Same(t, "Unexpected exit code", tc.code, exit.Code(r.err()))
		for _, p := range r.Problems {
			expect.That(t, p.Remedy != "", "No remedy for %q", p.Message)
		}
	})
}

// TestVerdict has nobody take for a yes what is said where nothing is known.
func TestVerdict(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[Report, string]{
		"all is known":     {In: Report{Together: Yes, Parts: of().parts}, Want: "They go together."},
		"a part is known":  {In: Report{Together: Unknown, Parts: []Part{{Name: "Kueue"}, {Name: "Trainer", Generation: "2.3"}}}, Want: "They go together, as far as that can be seen."},
		"nothing is known": {In: Report{Together: Unknown, Parts: []Part{{Name: "Kueue"}, {Name: "Trainer"}}}, Want: "Nothing can be seen that tells whether they go together."},
	}, func(t *testing.T, tc expect.Row[Report, string]) {
		var out strings.Builder
		expect.NoError(t, tc.In.print(&out, ""))
		expect.That(t, strings.HasSuffix(out.String(), "\n\n"+tc.Want+"\n"), "Unexpected verdict:\n%s", out.String())
	})
}

func TestManagerInstalled(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Manager.Namespace, Name: cluster.Manager.Deployment, Labels: map[string]string{cluster.VersionLabel: "v0.1.0"},
	}}
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cluster.Manager.Webhook}}
	deployments, webhooks := "deployments.apps", "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	type row struct {
		objects []client.Object
		unseen  []string
		want    Part
	}
	expect.Rows(t, map[string]row{
		"a Deployment": {objects: []client.Object{deployment}, want: Part{Version: "v0.1.0"}},
		"a webhook of a manager that runs beside": {objects: []client.Object{webhook}},
		"neither":                              {want: Part{Missing: true}},
		"a webhook alone may be seen":          {objects: []client.Object{webhook}, unseen: []string{deployments}},
		"no webhook, and it alone may be seen": {unseen: []string{deployments}, want: Part{unseen: true}},
		"Deployments alone may be seen":        {objects: []client.Object{webhook}, unseen: []string{webhooks}, want: Part{unseen: true}},
		"nothing may be seen":                  {objects: []client.Object{deployment, webhook}, unseen: []string{deployments, webhooks}, want: Part{unseen: true}},
	}, func(t *testing.T, tc row) {
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
