// SPDX-License-Identifier: Apache-2.0

package releases

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var all = []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22, trainjob.Trainer23}

func TestShippedRuntimesAreInOrder(t *testing.T) {
	for _, release := range all {
		manifest := expect.Must(Runtimes(release))(t)
		schema := expect.Must(NewSchema(release, Runtime))(t)
		expect.That(t, bytes.Contains(manifest, []byte("# Copyright The Kubeflow Authors.\n# SPDX-License-Identifier: Apache-2.0\n")),
			"Nothing says whose the runtimes of Trainer %s are", release)
		documents := bytes.Split(manifest, []byte("\n---\n"))
		expect.That(t, len(documents) >= 5, "Trainer %s ships %d runtimes", release, len(documents))
		for _, document := range documents {
			data := expect.Must(yaml.ToJSON(document))(t)
			_, errs := schema.Check(t.Context(), data)
			expect.NoError(t, errs.ToAggregate())
		}
	}
}

func TestUnknownRelease(t *testing.T) {
	_, err := Runtimes(trainjob.TrainerVersion(99))
	expect.That(t, err != nil, "There are runtimes of a release that there is not")
}

func TestCheck(t *testing.T) {
	const job = `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"a"},"spec":{"runtimeRef":{"name":"torch"}SPEC}}`
	const twice = `spec.trainer.env[1]: Duplicate value: {"name":"A"}`
	type says = map[trainjob.TrainerVersion]string
	expect.Rows(t, map[string]expect.Row[string, says]{
		"nothing more": {},
		"a field that one release has": {In: `,"activeDeadlineSeconds":60`,
			Want: says{trainjob.Trainer21: "spec.activeDeadlineSeconds: Forbidden: Trainer 2.1 has no such field: remove it, or correct its name"}},
		"a variable twice": {In: `,"trainer":{"env":[{"name":"A"},{"name":"A"}]}`,
			Want: says{trainjob.Trainer21: twice, trainjob.Trainer22: twice, trainjob.Trainer23: twice}},
		"what CEL refuses": {In: `,"initializer":{"dataset":{"storageUri":"/data"}}`,
			Want: says{trainjob.Trainer23: `spec.initializer.dataset.storageUri: Invalid value: "/data": storageUri may be empty, or it must be a valid URI (scheme://...)`}},
	}, func(t *testing.T, tc expect.Row[string, says]) {
		for _, release := range all {
			schema := expect.Must(NewSchema(release, TrainJob))(t)
			got := ""
			if _, errs := schema.Check(t.Context(), []byte(strings.Replace(job, "SPEC", tc.In, 1))); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			expect.Same(t, fmt.Sprintf("Unexpected verdict of Trainer %s", release), tc.Want[release], got)
		}
	})
}

func TestStoredWithDefaults(t *testing.T) {
	schema := expect.Must(NewSchema(trainjob.Trainer23, Runtime))(t)
	stored, errs := schema.Check(t.Context(), []byte(`{"spec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{}}]}}}}`))
	expect.NoError(t, errs.ToAggregate())
	expect.That(t, strings.Contains(string(stored), `"replicas":1`), "Stored as %s", stored)
}
