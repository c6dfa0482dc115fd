// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"io"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Generations of Trainer, as TRAINER of `make local-up` names them.
const (
	Trainer21 = "2.1"
	Trainer22 = "2.2"
	Trainer23 = "2.3"
)

// Trainer tells which generation of Trainer the cluster runs now, and has Client write
// for it. It asks the CRD, so that it works on every cluster, and after an upgrade.
func (c *Cluster) Trainer(ctx context.Context) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := c.Client.Get(ctx, client.ObjectKey{Name: trainjob.CRDName}, &crd); err != nil {
		return "", err
	}
	served, err := trainjob.TrainerVersionOf(&crd)
	c.overrides.Store(served == trainjob.Trainer21)
	return served.String(), err
}

// ChangeCRD changes what the CRD says of the spec of TrainJobs, in all its versions.
func (c *Cluster) ChangeCRD(ctx context.Context, change func(crd *apiextensionsv1.CustomResourceDefinition, spec apiextensionsv1.JSONSchemaProps)) error {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: trainjob.CRDName}}
	return TryChange(ctx, c.Client, crd, func() {
		for i := range crd.Spec.Versions {
			change(crd, crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"])
		}
	})
}

// ExtendCRD makes the API server keep a field "future" of patch entries that no Go type has, as a later release
// of Trainer might bring one, or takes it out again.
func (c *Cluster) ExtendCRD(ctx context.Context, extended bool) error {
	return c.ChangeCRD(ctx, func(_ *apiextensionsv1.CustomResourceDefinition, spec apiextensionsv1.JSONSchemaProps) {
		for _, name := range []string{"podTemplateOverrides", "runtimePatches"} {
			if list, ok := spec.Properties[name]; ok {
				delete(list.Items.Schema.Properties, "future")
				if extended {
					list.Items.Schema.Properties["future"] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
				}
			}
		}
	})
}

// Upgrade brings a newer Trainer and its JobSet to a local control plane. All else runs on meanwhile.
func (c *Cluster) Upgrade(ctx context.Context, trainer string, progress io.Writer) error {
	return c.change(ctx, progress, "up", "--trainer", trainer)
}

// UpgradeCRDs brings the CRDs of a newer Trainer, as the first step of an upgrade that Upgrade completes.
func (c *Cluster) UpgradeCRDs(ctx context.Context, trainer string, progress io.Writer) error {
	return c.change(ctx, progress, "crds", "--trainer", trainer)
}

// change has localcluster change the cluster but for its nodes, which NODES of the environment need
// not be the number of, and looks which Trainer it has then.
func (c *Cluster) change(ctx context.Context, progress io.Writer, args ...string) error {
	s, err := c.state()
	if err != nil {
		return err
	}
	if err := localcluster(ctx, c.localDir, progress, append(args, "--nodes", strconv.Itoa(s.Settings.Nodes))...); err != nil {
		return err
	}
	_, err = c.Trainer(ctx)
	return err
}
