// SPDX-License-Identifier: Apache-2.0

package podsets

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWorkloadDefaultsStayTheSame(t *testing.T) {
	crd := func(uid types.UID, generation int64, resourceVersion string) *apiextensionsv1.CustomResourceDefinition {
		crd := kit.CRD("workloads.kueue.x-k8s.io", kueue.SchemeGroupVersion.Version, "podSets")
		crd.UID, crd.Generation, crd.ResourceVersion = uid, generation, resourceVersion
		return crd
	}
	type row struct {
		gone bool
		next *apiextensionsv1.CustomResourceDefinition
		want bool
	}
	expect.Rows(t, map[string]row{
		"another status":              {next: crd("a", 1, "2"), want: true},
		"another schema":              {next: crd("a", 2, "2")},
		"the CRD of a new Kueue":      {next: crd("b", 1, "2")},
		"one that was away meanwhile": {gone: true, next: crd("a", 1, "1")},
	}, func(t *testing.T, tc row) {
		var w Defaults
		w.look(crd("a", 1, "1"))
		before := expect.Must(w.get())(t)
		if tc.gone {
			w.gone()
		}
		w.look(tc.next)
		expect.Same(t, "They are the same defaults", tc.want, before == expect.Must(w.get())(t))
	})
}

// MultiKueue copies the job, and the manager of the other cluster makes the entry there.
func TestAJobForAnotherClusterWaitsWithoutOurEntry(t *testing.T) {
	field := patch.Of(trainjob.Trainer23)
	job := &trainjob.TrainJob{Spec: trainjob.Spec{ManagedBy: new(kueue.MultiKueueControllerName)}}
	field.Set(&job.Spec, []patch.Placement{patch.Gated("node")})
	spec, changed, err := (&Describer{Field: field}).Gated(t.Context(), job)
	expect.That(t, err == nil && changed && !field.Has(&spec), "changed: %t, %v; spec %+v", changed, err, spec)
}

func TestRememberedPodSets(t *testing.T) {
	defaults := &podset.Defaults{}
	from := func(change func(*origin)) origin {
		o := origin{
			job:     &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{UID: "a", Generation: 1, Labels: map[string]string{"l": "1"}}},
			runtime: "snapshot", field: patch.Of(trainjob.Trainer23), defaults: defaults,
		}
		return *kit.With(&o, change)
	}
	expect.Rows(t, map[string]expect.Row[func(*origin), bool]{
		"nothing changed":             {Want: true},
		"another TrainJob":            {In: func(o *origin) { o.job.UID = "b" }},
		"another spec":                {In: func(o *origin) { o.job.Generation = 2 }},
		"another label":               {In: func(o *origin) { o.job.Labels["l"] = "2" }},
		"another annotation":          {In: func(o *origin) { o.job.Annotations = map[string]string{"a": "1"} }},
		"the runtime was frozen":      {In: func(o *origin) { o.runtime = "uid/7" }},
		"Trainer was upgraded":        {In: func(o *origin) { o.field = patch.Of(trainjob.Trainer21) }},
		"Kueue was upgraded":          {In: func(o *origin) { o.defaults = nil }},
		"a TrainJob before it is one": {In: func(o *origin) { o.job.UID = "" }},
	}, func(t *testing.T, tc expect.Row[func(*origin), bool]) {
		d := Describer{Remembered: lru.New(Remembers)}
		d.remember(from(nil), []kueue.PodSet{{Name: "node"}})
		d.remember(from(func(o *origin) { o.job.UID = "" }), []kueue.PodSet{{Name: "node"}})
		expect.Same(t, "It is remembered", tc.Want, d.recall(from(tc.In)) != nil)
	})
}
