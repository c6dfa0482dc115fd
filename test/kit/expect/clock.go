// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"testing/synctest"
	"time"
)

// Pass lets time pass on the clock of a synctest bubble, and waits for what it sets off.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
