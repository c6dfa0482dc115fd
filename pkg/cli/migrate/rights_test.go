// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestExportNeedsTheRight(t *testing.T) {
	c := kit.Fake(kit.Scheme(trainjob.AddToScheme)).WithInterceptorFuncs(kit.Refusing(func(any, client.ObjectKey) error { return kit.Forbidden("trainjobs") })).Build()
	_, _, err := export(t.Context(), c, "")
	expect.Says(t, err, "you may not list TrainJobs of all namespaces: name one with -n")
	expect.Same(t, "Unexpected exit code", exit.Unseen, exit.Code(err))
}
