// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	// The library that the API server applies JSON patches with.
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestDecisionTests(t *testing.T) {
	const (
		queue    = "kueue.x-k8s.io/queue-name"
		prebuilt = "kueue.x-k8s.io/prebuilt-workload-name"
	)
	meta := func(labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Labels: labels, Annotations: annotations}
	}
	cases := map[string]struct {
		known, live metav1.ObjectMeta
		want        bool
	}{
		"the same":                      {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a"}, nil), want: true},
		"none at all":                   {want: true},
		"another label came":            {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", "b": "c"}, nil), want: true},
		"another queue":                 {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "b"}, nil)},
		"the last label went":           {known: meta(map[string]string{queue: "a"}, nil)},
		"the first label came":          {live: meta(map[string]string{queue: "a"}, nil)},
		"the time limit went":           {known: meta(map[string]string{queue: "a", "kueue.x-k8s.io/max-exec-time-seconds": "9"}, nil), live: meta(map[string]string{queue: "a"}, nil)},
		"a time limit came":             {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", "kueue.x-k8s.io/max-exec-time-seconds": "9"}, nil)},
		"a priority came":               {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", "kueue.x-k8s.io/priority-class": "p"}, nil)},
		"a prebuilt Workload came":      {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", prebuilt: "w"}, nil)},
		"the same by annotation":        {known: meta(nil, map[string]string{"a": "b"}), live: meta(nil, map[string]string{"a": "b", prebuilt: "w"})},
		"another annotation came":       {known: meta(nil, map[string]string{"a": "b"}), live: meta(nil, map[string]string{"a": "c", "d": "e"}), want: true},
		"an empty value is one":         {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", prebuilt: ""}, nil)},
		"empty maps are none":           {known: meta(map[string]string{}, map[string]string{}), want: true},
		"an empty value that was there": {known: meta(map[string]string{queue: "a", prebuilt: ""}, nil), live: meta(map[string]string{queue: "a", prebuilt: ""}, nil), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected decidedAlike", tc.want, decidedAlike(&tc.live, &tc.known))
			err := applied(t, &tc.known, &tc.live)
			expect.That(t, (err == nil) == tc.want, "The tests say %v, want them to hold: %t", err, tc.want)
		})
	}
}

// applied returns what the API server's library says to the tests made of known on an object.
func applied(t *testing.T, known, live *metav1.ObjectMeta) error {
	t.Helper()
	patch := expect.Must(jsonpatch.DecodePatch([]byte(expect.JSON(t, decisionTests(known)))))(t)
	_, err := patch.Apply([]byte(expect.JSON(t, map[string]any{"metadata": live})))
	return err
}
