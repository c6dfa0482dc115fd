// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

// ManagerNamespace finds where the manager runs, which is wherever it was installed, by whom its
// webhooks ask. Without them, and for users who may not read them, it is the manifests' namespace.
func ManagerNamespace(ctx context.Context, c client.Reader) (string, error) {
	var webhooks admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Get(ctx, client.ObjectKey{Name: ManagerWebhook}, &webhooks)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return "", fmt.Errorf("reading the manager's webhooks: %w", err)
	}
	for _, w := range webhooks.Webhooks {
		if w.ClientConfig.Service != nil {
			return w.ClientConfig.Service.Namespace, nil
		}
	}
	return config.Namespace, nil
}

// KueuePlace is where the manager reads Kueue's configuration; where the manifests have it without the
// manager's own, which may be nil.
func KueuePlace(manager *config.Configuration) kueueconfig.ConfigMap {
	if manager == nil {
		manager = &config.Configuration{}
		config.Default(manager)
	}
	return manager.KueueConfigMap
}

// Placed is Kueue or the manager where it was installed, as far as the user may see that; of others it
// is where their manifests install them.
func Placed(ctx context.Context, c client.Reader, p Part) (Part, error) {
	var err error
	switch p.Name {
	case Manager.Name:
		p.Namespace, err = ManagerNamespace(ctx, c)
	case Kueue.Name:
		manager, unread := ManagerConfiguration(ctx, c)
		if !apierrors.IsForbidden(unread) {
			err = unread
		}
		at := KueuePlace(manager)
		p.Namespace, p.ConfigMap = at.Namespace, at.Name
	}
	return p, err
}
