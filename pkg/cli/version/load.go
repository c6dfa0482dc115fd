// SPDX-License-Identifier: Apache-2.0

package version

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// loader reads the parts. What the user may not read is noted, once of each kind; err is the first
// other error.
type loader struct {
	client client.Client
	unseen []string
	err    error
}

// parts returns what can be told of them, in the order in which they are installed.
func (l *loader) parts(ctx context.Context) ([]Part, error) {
	var parts []Part
	for _, of := range []cluster.Part{cluster.Kueue, cluster.JobSet, cluster.Trainer, cluster.Manager} {
		of, err := cluster.Placed(ctx, l.client, of)
		if err != nil {
			return nil, err
		}
		parts = append(parts, l.part(ctx, of))
		if l.err != nil {
			return nil, fmt.Errorf("looking for %s: %w", of.Name, l.err)
		}
	}
	return parts, nil
}

func (l *loader) part(ctx context.Context, of cluster.Part) Part {
	var crd apiextensionsv1.CustomResourceDefinition
	var deployment appsv1.Deployment
	var configMaps corev1.ConfigMapList
	deployed := l.get(ctx, "deployments.apps", client.ObjectKey{Namespace: of.Namespace, Name: of.Deployment}, &deployment)
	installed := deployed
	switch {
	case of.CRD != "":
		installed = l.get(ctx, "customresourcedefinitions.apiextensions.k8s.io", client.ObjectKey{Name: of.CRD}, &crd)
	case deployed != there: // It can also run elsewhere.
		installed = l.get(ctx, "mutatingwebhookconfigurations.admissionregistration.k8s.io", client.ObjectKey{Name: of.Webhook}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	}
	if of.ConfigMap != "" {
		l.seen("configmaps", l.client.List(ctx, &configMaps, client.InNamespace(of.Namespace)))
	}
	p := Part{Name: of.Name, Missing: installed == missing && (of.CRD != "" || deployed == missing)}
	p.unseen = !p.Missing && installed != there && deployed != there
	p.Version = cluster.Release(&deployment, cluster.ConfigMapOf(&deployment, configMaps.Items, of.ConfigMap))
	if installed == there && of.CRD == trainjob.CRDName {
		// What is none of those that are known is none.
		generation, _ := trainjob.TrainerVersionOf(&crd)
		p.Generation = generation.String()
	}
	return p
}

// sight is what is known of an object.
type sight int

const (
	missing sight = iota
	hidden
	there
)

func (l *loader) get(ctx context.Context, kind string, key client.ObjectKey, obj client.Object) sight {
	return l.seen(kind, l.client.Get(ctx, key, obj))
}

// seen says what an answer shows of an object of a kind.
func (l *loader) seen(kind string, err error) sight {
	switch {
	case err == nil:
		return there
	case !apierrors.IsForbidden(err):
		l.err = cmp.Or(l.err, client.IgnoreNotFound(err))
		return missing
	case !slices.Contains(l.unseen, kind):
		l.unseen = append(l.unseen, kind)
	}
	return hidden
}
