// SPDX-License-Identifier: Apache-2.0

package adversary

import "slices"

// shrink returns the shortest sequence that it finds which still fails, by leaving out ever smaller parts,
// as long as there is time to ask.
func shrink(actions []action, fails func([]action) bool, more func() bool) []action {
	for size := len(actions) / 2; size > 0; {
		shorter := false
		for from := 0; from < len(actions) && more(); {
			without := slices.Delete(slices.Clone(actions), from, min(from+size, len(actions)))
			if fails(without) {
				actions, shorter = without, true
			} else {
				from += size
			}
		}
		if !more() {
			break
		}
		if !shorter || size > len(actions)/2 {
			size /= 2
		}
	}
	return actions
}
