// SPDX-License-Identifier: Apache-2.0

package podsets

import (
	"context"
	"fmt"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// Defaults follows the served Workload CRD and keeps what was made of it: the CRD
// is so big that copying it out of a cache would cost more than all else about a PodSet.
type Defaults struct{ made atomic.Pointer[madeDefaults] }

// madeDefaults are those that were made of a generation of a CRD.
type madeDefaults struct {
	uid        types.UID
	generation int64
	defaults   *podset.Defaults
	err        error
}

// errNoWorkloadCRD is why there are no defaults where there is no CRD.
var errNoWorkloadCRD = fmt.Errorf("there is no CRD %s: install Kueue", podset.WorkloadCRD)

// FixedDefaults are those that never change.
func FixedDefaults(defaults *podset.Defaults) *Defaults {
	w := &Defaults{}
	w.made.Store(&madeDefaults{defaults: defaults})
	return w
}

// Follow looks at the CRD now and at every change of it. It returns when crds is in step.
func (w *Defaults) Follow(ctx context.Context, crds cache.Cache) error {
	w.gone()
	return caches.FollowCRD(ctx, crds, podset.WorkloadCRD, w.look, w.gone)
}

// look makes the defaults again where the schema changed. Most events are of the status, and
// other defaults, though the same ones, would have every TrainJob described again.
func (w *Defaults) look(crd *apiextensionsv1.CustomResourceDefinition) {
	if made := w.made.Load(); made != nil && crd.UID != "" && made.uid == crd.UID && made.generation == crd.Generation {
		return
	}
	defaults, err := podset.NewDefaults(crd, kueue.SchemeGroupVersion.Version)
	w.made.Store(&madeDefaults{crd.UID, crd.Generation, defaults, err})
}

// gone takes note that there is no CRD.
func (w *Defaults) gone() { w.made.Store(&madeDefaults{err: errNoWorkloadCRD}) }

// get returns the defaults of the CRD as it is now. They are the same ones until it changes.
func (w *Defaults) get() (*podset.Defaults, error) {
	made := w.made.Load()
	return made.defaults, made.err
}
