// SPDX-License-Identifier: Apache-2.0

package version

import (
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

// loader reads the parts. What the user may not read is noted, once of each kind.
type loader struct {
	client client.Client
	unseen []string
}

// parts returns what can be told of them, in the order in which they are installed.
func (l *loader) parts(ctx context.Context) ([]Part, error) {
	var parts []Part
	for _, of := range []cluster.Part{cluster.Kueue, cluster.JobSet, cluster.Trainer, cluster.Manager} {
		of, err := cluster.Placed(ctx, l.client, of)
		if err != nil {
			return nil, err
		}
		p, err := l.part(ctx, of)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", of.Name, err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (l *loader) part(ctx context.Context, of cluster.Part) (Part, error) {
	p := Part{Name: of.Name}
	if err := l.crd(ctx, of, &p); err != nil {
		return p, err
	}
	deployment, errDeployment := l.deployment(ctx, of)
	if err := l.unread("deployments.apps", errDeployment); err != nil {
		return p, err
	}
	switch {
	case deployment != nil:
		p.unseen = false
	case of.Webhook != "":
		if err := l.webhook(ctx, of, &p, errDeployment); err != nil {
			return p, err
		}
	}
	configMap, err := l.configMap(ctx, of, deployment)
	p.Version = cluster.Release(deployment, configMap)
	return p, err
}

// crd tells by its CRD whether a part is installed, and the generation of Trainer.
func (l *loader) crd(ctx context.Context, of cluster.Part, p *Part) error {
	if of.CRD == "" {
		return nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	err := l.client.Get(ctx, client.ObjectKey{Name: of.CRD}, &crd)
	p.Missing, p.unseen = apierrors.IsNotFound(err), apierrors.IsForbidden(err)
	if err == nil && of.CRD == trainjob.CRDName {
		// What is none of those that are known is none.
		generation, _ := trainjob.TrainerVersionOf(&crd)
		p.Generation = generation.String()
	}
	return l.unread("customresourcedefinitions.apiextensions.k8s.io", err)
}

// deployment returns nil with the error.
func (l *loader) deployment(ctx context.Context, of cluster.Part) (*appsv1.Deployment, error) {
	var found appsv1.Deployment
	if err := l.client.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: of.Deployment}, &found); err != nil {
		return nil, err
	}
	return &found, nil
}

// webhook tells whether a part without a CRD is installed, of which no Deployment was seen: it
// can also run elsewhere.
func (l *loader) webhook(ctx context.Context, of cluster.Part, p *Part, errDeployment error) error {
	err := l.client.Get(ctx, client.ObjectKey{Name: of.Webhook}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	p.Missing = apierrors.IsNotFound(err) && apierrors.IsNotFound(errDeployment)
	p.unseen = err != nil && !p.Missing
	return l.unread("mutatingwebhookconfigurations.admissionregistration.k8s.io", err)
}

func (l *loader) configMap(ctx context.Context, of cluster.Part, deployment *appsv1.Deployment) (*corev1.ConfigMap, error) {
	if of.ConfigMap == "" {
		return nil, nil
	}
	var list corev1.ConfigMapList
	err := l.client.List(ctx, &list, client.InNamespace(of.Namespace))
	return cluster.ConfigMapOf(deployment, list.Items, of.ConfigMap), l.unread("configmaps", err)
}

// unread takes note of a kind that may not be read, and returns every other error.
func (l *loader) unread(kind string, err error) error {
	if !apierrors.IsForbidden(err) {
		return client.IgnoreNotFound(err)
	}
	if !slices.Contains(l.unseen, kind) {
		l.unseen = append(l.unseen, kind)
	}
	return nil
}
