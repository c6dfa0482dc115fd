// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Labels and annotations of a TrainJob that decide which Workload is its own, and what that
// says.
var (
	decidingLabels = []string{
		kueueconstants.QueueLabel, kueueconstants.PrebuiltWorkloadLabel,
		kueueconstants.MaxExecTimeSecondsLabel, kueueconstants.WorkloadPriorityClassLabel,
	}
	decidingAnnotations = []string{kueueconstants.PrebuiltWorkloadAnnotation}
)

// decisionTests test them in a JSON patch, as they are known.
func decisionTests(known *metav1.ObjectMeta) []jsonpatch.JsonPatchOperation {
	return append(membersTests("/metadata/labels", known.Labels, decidingLabels),
		membersTests("/metadata/annotations", known.Annotations, decidingAnnotations)...)
}

// null has to be written: the API servers of Kubernetes before 1.35 panic at a test that has no value at all.
var null = json.RawMessage("null")

// membersTests test members of a map. To the API server a member that is missing equals a
// test for null, but one of a map that is missing as a whole equals nothing.
func membersTests(path string, have map[string]string, keys []string) []jsonpatch.JsonPatchOperation {
	if len(have) == 0 {
		return []jsonpatch.JsonPatchOperation{jsonpatch.NewOperation("test", path, null)}
	}
	var tests []jsonpatch.JsonPatchOperation
	for _, key := range keys {
		var value any = null
		if text, ok := have[key]; ok {
			value = text
		}
		tests = append(tests, jsonpatch.NewOperation("test", path+"/"+strings.ReplaceAll(key, "/", "~1"), value))
	}
	return tests
}

// decidedAlike reports whether the tests made of one object hold for another.
func decidedAlike(live, known *metav1.ObjectMeta) bool {
	return reflect.DeepEqual(decisionTests(live), decisionTests(known))
}

// SetQueue sets the queue label of a TrainJob that has none. If somebody set it meanwhile, it returns a conflict.
func SetQueue(ctx context.Context, c client.Client, job *trainjob.TrainJob, queue string) error {
	if err := set(ctx, c, job, "labels", job.Labels, kueueconstants.QueueLabel, queue); err != nil {
		return fmt.Errorf("queueing TrainJob %s: %w", client.ObjectKeyFromObject(job), err)
	}
	return nil
}

// set sets one of the labels or annotations of a TrainJob, which are those that we know, or returns a conflict.
func set(ctx context.Context, c client.Client, job *trainjob.TrainJob, field string, known map[string]string, key, value string) error {
	next := maps.Clone(known)
	if next == nil {
		next = map[string]string{}
	}
	next[key] = value
	// Text and maps of it can be encoded.
	data, _ := json.Marshal([]jsonpatch.JsonPatchOperation{
		jsonpatch.NewOperation("test", "/metadata/uid", job.UID),
		jsonpatch.NewOperation("test", "/metadata/"+field, known),
		jsonpatch.NewOperation("add", "/metadata/"+field, next),
	})
	err := c.Patch(ctx, job, client.RawPatch(types.JSONPatchType, data))
	if failedTest(err) {
		return apierrors.NewConflict(Resource, job.Name, err)
	}
	return err
}

// endedAnnotation is on a TrainJob that has ended and that Trainer does not take for ended any more, with its UID: a manifest
// that is copied is another job.
const endedAnnotation = "kueue-trainer.dev/ended"

// HasEnded reports whether MarkEnded was called of a TrainJob.
func HasEnded(job *trainjob.TrainJob) bool {
	return job.UID != "" && job.Annotations[endedAnnotation] == string(job.UID)
}

// MarkEnded writes on a TrainJob that it has ended, unless that is there: its Workload, which says so, may be deleted.
func MarkEnded(ctx context.Context, c client.Client, job *trainjob.TrainJob) error {
	if HasEnded(job) || !job.DeletionTimestamp.IsZero() {
		return nil
	}
	err := set(ctx, c, job, "annotations", job.Annotations, endedAnnotation, string(job.UID))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("noting that TrainJob %s has ended: %w", client.ObjectKeyFromObject(job), err)
	}
	return nil
}
