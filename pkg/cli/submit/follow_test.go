// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestLook is about what is left of a former TrainJob: Kubernetes deletes it after the TrainJob.
func TestLook(t *testing.T) {
	cases := map[string]struct {
		// owner is the UID of the JobSet's TrainJob, runs that of the JobSet's pods.
		owner, runs types.UID
		jobSet      bool
		pods        int
	}{
		"its own":                           {owner: "job", runs: "js", jobSet: true, pods: 1},
		"those of a former TrainJob":        {owner: "former", runs: "js"},
		"a JobSet of its own, and old pods": {owner: "job", runs: "former", jobSet: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := trainJob("")
			job.UID = "job"
			former := job.DeepCopyObject().(*trainjob.TrainJob)
			former.UID = tc.owner
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "js", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(former, trainjob.GVK)}}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", Labels: map[string]string{jobsetapi.JobSetNameKey: "job", jobsetapi.JobSetUIDKey: string(tc.runs)}}}
			f := &follower{client: kit.Fake(kit.Scheme(trainjob.AddToScheme), job, js, pod).Build(), job: client.ObjectKeyFromObject(job)}
			v := expect.Must(f.look(t.Context()))(t)
			expect.Same(t, "Unexpected JobSet and number of pods", []any{tc.jobSet, tc.pods}, []any{v.jobSet != nil, len(v.pods)})
		})
	}
}
