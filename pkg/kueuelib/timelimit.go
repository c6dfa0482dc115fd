// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
)

// NoTimeLimit is about a time limit that is in order for Kueue's webhook, which reads 64 bits, and none for the rest of
// Kueue, which reads 32: the job would run without.
func NoTimeLimit(labels map[string]string) field.ErrorList {
	value := labels[kueueconstants.MaxExecTimeSecondsLabel]
	if seconds, err := strconv.ParseInt(value, 10, 64); err != nil || seconds <= math.MaxInt32 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "labels").Key(kueueconstants.MaxExecTimeSecondsLabel), value,
		fmt.Sprintf("Kueue sets no limit above %d seconds: write less, or leave the label out", math.MaxInt32))}
}

// OverTime is how Kueue has stopped a Workload that reached its limit; nil where it has not.
func OverTime(wl *kueue.Workload) *metav1.Condition {
	evicted := True(wl.Status.Conditions, kueue.WorkloadEvicted)
	if wl.Spec.MaximumExecutionTimeSeconds == nil || evicted == nil || !strings.HasSuffix(evicted.Reason, kueue.WorkloadMaximumExecutionTimeExceeded) {
		return nil
	}
	return evicted
}
