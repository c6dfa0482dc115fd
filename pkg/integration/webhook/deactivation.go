// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// deactivator keeps the Workload of a TrainJob active that somebody deactivates while it has quota. The manager alone
// says when the last pod is gone.
type deactivator struct{ *handler }

func (d *deactivator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.UserInfo.Username == d.Self || d.InTree.Active() {
		return admission.Allowed("")
	}
	wl, old := &kueue.Workload{}, &kueue.Workload{}
	if err := errors.Join(d.decoder.Decode(req, wl), d.decoder.DecodeRaw(req.OldObject, old)); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	// Status and owners of the request are whatever its sender wrote.
	if kueuelib.IsActive(wl) || !kueuelib.IsActive(old) || !state.HoldsQuota(old) || state.ControllerOfKind(old, trainjob.GVK) == nil {
		return admission.Allowed("")
	}
	// What was decoded from JSON can be encoded; of what could not, PatchResponseFromRaw would make an error.
	before, _ := json.Marshal(wl)
	wl.Spec.Active = ptr.To(true)
	if !deactivation.ByKueue(old) {
		deactivation.Mark(wl)
	}
	after, _ := json.Marshal(wl)
	ctrl.LoggerFrom(ctx).V(1).Info("Put off the deactivation of a Workload until its job has no pods")
	return admission.PatchResponseFromRaw(before, after).WithWarnings(fmt.Sprintf(
		"Workload %s stays active until the last pod of its TrainJob is gone; then it is deactivated, and its quota is free", wl.Name))
}
