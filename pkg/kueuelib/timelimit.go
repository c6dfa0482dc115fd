// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
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
