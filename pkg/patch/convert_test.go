// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// With our part in somebody else's name the gate would stay when ours is taken off.
func TestOurPartStaysOursWhenConverted(t *testing.T) {
	older, newer := Of(trainjob.Trainer21), Of(trainjob.Trainer23)
	for name, placements := range map[string][]Placement{
		"at the gate": {Gated("node"), Gated("launcher")},
		"placed":      placed,
	} {
		t.Run(name, func(t *testing.T) {
			in21 := specOf(t, `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"mine"}}}]}`)
			in23 := specOf(t, `{"runtimePatches":[{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node"}]}}}}]}`)
			for f, spec := range map[Field]*trainjob.Spec{older: in21, newer: in23} {
				expect.Must(f.Set(spec, placements))(t)
			}
			// Somebody put an override behind ours while our webhook was away.
			in21.PodTemplateOverrides = append(in21.PodTemplateOverrides, in21.PodTemplateOverrides[0])

			patches, _, errs := convert.ToRuntimePatches(in21.PodTemplateOverrides, convert.DefaultOwner)
			to23 := (&trainjob.Spec{RuntimePatches: patches})
			expect.That(t, newer.Last(to23) && newer.Same(to23, in23),
				"From overrides to patches, ours is another one: %s, %v", expect.JSON(t, to23), errs.ToAggregate())
			overrides, _, _, errs := convert.ToPodTemplateOverrides(in23.RuntimePatches)
			to21 := (&trainjob.Spec{PodTemplateOverrides: overrides})
			expect.That(t, older.Last(to21) && older.Same(to21, in21),
				"From patches to overrides, ours is another one: %s, %v", expect.JSON(t, to21), errs.ToAggregate())
		})
	}
}

// What renders does not look at owners: an override behind ours wins, as it does in Trainer.
func TestAllOverridesAreOnePatch(t *testing.T) {
	spec := specOf(t, `{"podTemplateOverrides":[
		{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"first","zone":"first"}}},
		`+sides["podTemplateOverrides"].placed+`,
		{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"last"}}}]}`)
	entry := expect.Must(one(t)(Of(trainjob.Trainer21).All(spec)).Decode())(t)
	pod := replicatedJobs(&entry)[0].Template.Spec.Template
	expect.Same(t, "Unexpected node selector", map[string]string{"pool": "last", "zone": "first"}, pod.Spec.NodeSelector)
	expect.Same(t, "Trainer gives the pods our mark, and what is rendered does not have it", Manager, pod.Metadata.Annotations[ManagerAnnotation])
}
