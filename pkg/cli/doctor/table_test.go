// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestEveryRowIsComplete(t *testing.T) {
	for _, s := range table {
		expect.That(t, s.checks[0].wrong != nil, "The first row of %q finds nothing", s.title)
		for _, c := range s.checks {
			expect.That(t, c.id != "" && c.severity != 0 && c.when != "", "A row that the docs cannot describe: %+v", c)
			expect.Same(t, "It is another case of a check: "+c.id, c.wrong == nil, c.inOrder == "")
			expect.That(t, (c.wrong == nil) == (c.looksAt == nil),
				"A row that is neither a check nor another case of one: %s, %s", c.id, c.when)
		}
	}
}
