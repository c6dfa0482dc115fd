// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TrainerLags reports whether Trainer's webhook refused a change of the patches for pods
// that are gone already: the JobSet's status, by which it goes, is behind the Jobs', or its
// view of that is behind ours. It says so in the same words in every release.
func TrainerLags(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "is still active")
}
