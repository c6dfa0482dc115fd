// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TrainerLags reports whether Trainer's webhook refused a change of the patches for pods
// that are gone already: the JobSet's status, by which it goes, is behind the Jobs', or its
// view of that is behind ours. It says so in the same words in every release.
func TrainerLags(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "is still active")
}

// decides reports whether err is somebody's decision about a write, and no state of the
// API server or of Trainer that passes.
func decides(err error) bool {
	return !TrainerLags(err) &&
		(apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsBadRequest(err))
}

// failedTest reports whether the generation is not what our patch says any more: a
// conflict. The API server answers it with 422 and, unlike an invalid object, without
// naming a kind.
func failedTest(err error) bool { return apierrors.IsInvalid(err) && DetailsOf(err).Kind == "" }

// ConflictingWorkload returns the name of the Workload that err is a conflict about; empty:
// it is about something else.
func ConflictingWorkload(err error) string {
	if about := DetailsOf(err); apierrors.IsConflict(err) && about.Group == kueue.SchemeGroupVersion.Group && about.Kind == "workloads" {
		return about.Name
	}
	return ""
}

// DetailsOf returns what an API server, or a cache, says that err is about.
func DetailsOf(err error) metav1.StatusDetails {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return *status.Status().Details
	}
	return metav1.StatusDetails{}
}
