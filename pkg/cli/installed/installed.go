// SPDX-License-Identifier: Apache-2.0

// Package installed knows what an installation consists of. It knows nothing of kubectl's flags: the
// manager's binary, which brings the command uninstall, links it.
package installed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ManagerDeployment is the name of kueue-trainer's.
const ManagerDeployment = "kueue-trainer-controller-manager"

// Scheme has every kind that the commands look at. TrainJobs come as trainjob.TrainJob.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetapi.AddToScheme, kueue.AddToScheme, visibility.AddToScheme, trainjob.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Connect connects to a cluster. Nothing is cached.
func Connect(config *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(Hurried(config), client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, err
	}
	published, err := discovery.NewDiscoveryClientForConfig(config)
	return connected{c, published}, err
}

// connected is a client that reads what the API server publishes of its kinds, too.
type connected struct {
	client.WithWatch
	published *discovery.DiscoveryClient
}

// schema reads the fields of TrainJobs from OpenAPI, which everybody may read who is logged in (ClusterRole system:discovery).
func (c connected) schema(ctx context.Context) (*apiextensionsv1.JSONSchemaProps, error) {
	data, err := c.published.RESTClient().Get().AbsPath("/openapi/v3/apis", trainjob.GVK.GroupVersion().String()).
		SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var document struct {
		Components struct {
			Schemas struct {
				TrainJob apiextensionsv1.JSONSchemaProps `json:"org.kubeflow.trainer.v1alpha1.TrainJob"`
			}
		}
	}
	err = json.Unmarshal(data, &document)
	return &document.Components.Schemas.TrainJob, err
}

// Hurried is a configuration for a command, which asks much at once, and then never again; kubectl has
// the same limits.
func Hurried(config *rest.Config) *rest.Config {
	config.QPS, config.Burst = 50, 300
	return config
}

// ErrNoTrainer is why there are no TrainJobs at all.
var ErrNoTrainer = errors.New("install Kubeflow Trainer 2.1 or later")

// Generation tells the generation of Trainer that the cluster serves, also to a user of Connect's client who may not read CRDs.
func Generation(ctx context.Context, c client.Reader) (trainjob.TrainerVersion, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	err := c.Get(ctx, client.ObjectKey{Name: trainjob.CRDName}, &crd)
	if apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("the cluster has no CRD %s: %w", trainjob.CRDName, ErrNoTrainer)
	}
	if of, is := c.(connected); is && apierrors.IsForbidden(err) {
		if schema, unread := of.schema(ctx); unread == nil {
			served := apiextensionsv1.CustomResourceDefinitionVersion{Name: trainjob.GVK.Version, Served: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}
			crd.Name, crd.Spec.Versions, err = trainjob.CRDName, []apiextensionsv1.CustomResourceDefinitionVersion{served}, nil
		}
	}
	if err != nil {
		return 0, fmt.Errorf("reading CRD %s: %w", trainjob.CRDName, err)
	}
	return trainjob.TrainerVersionOf(&crd)
}

// Asked reports whether rules name a resource. Those for all there are, as policy engines have them, are
// not counted: this tells whose webhooks they are, whatever the name of their configuration.
func Asked(rules []admissionregistrationv1.RuleWithOperations, about schema.GroupResource) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.APIGroups, about.Group) && slices.Contains(rule.Resources, about.Resource)
	})
}
