// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The API server keeps lists with several items of one key; the first is the one that is merged.
func TestMergeKeepsTheFirstOfSeveral(t *testing.T) {
	base := expect.FromJSON[Object](t, `{"containers":[{"name":"node","image":"a"},{"name":"node","image":"b"},{"name":"side","image":"c"}]}`)
	over := expect.FromJSON[Object](t, `{"containers":[{"name":"node","image":"d"}]}`)
	want := expect.FromJSON[Object](t, `{"containers":[{"name":"node","image":"d"},{"name":"node","image":"b"},{"name":"side","image":"c"}]}`)
	expect.Same(t, "Merged otherwise", want, expect.Must(mergePodSpecs(base, over))(t))
}
