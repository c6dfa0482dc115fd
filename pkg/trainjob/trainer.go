// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
)

// CRDName is the CRD of TrainJob, which tells one version of Trainer from another:
// all serve the same version of the API.
const CRDName = "trainjobs.trainer.kubeflow.org"

// TrainerVersion is a minor release of Trainer, as far as it matters here.
type TrainerVersion int

// Trainer versions, oldest first.
const (
	// Trainer21 has spec.podTemplateOverrides.
	Trainer21 TrainerVersion = iota + 1
	// Trainer22 has spec.runtimePatches.
	Trainer22
	// Trainer23 keeps a snapshot of the runtime, and merges resourcesPerNode into it.
	Trainer23
)

func (v TrainerVersion) String() string {
	switch v {
	case Trainer21:
		return "2.1"
	case Trainer22:
		return "2.2"
	case Trainer23:
		return "2.3"
	}
	return "unknown"
}

var (
	overridesField = []string{"spec", "podTemplateOverrides"}
	patchesField   = []string{"spec", "runtimePatches"}
	// gracePeriodField came with Trainer 2.3, which left no plainer mark in the CRD.
	gracePeriodField = append(patchesField, "trainingRuntimeSpec", "template", "spec", "replicatedJobs",
		"template", "spec", "template", "spec", "terminationGracePeriodSeconds")
)

// TrainerVersionOf tells the version of Trainer that a CRD of TrainJob comes from, by the
// API version that we use, if it is served. One newer than we know counts as the newest that
// we know.
func TrainerVersionOf(crd *apiextensionsv1.CustomResourceDefinition) (TrainerVersion, error) {
	for _, version := range crd.Spec.Versions {
		if version.Name != GVK.Version || !version.Served || version.Schema == nil {
			continue
		}
		switch schema := version.Schema.OpenAPIV3Schema; {
		case hasField(schema, gracePeriodField...):
			return Trainer23, nil
		case hasField(schema, patchesField...):
			return Trainer22, nil
		case hasField(schema, overridesField...):
			return Trainer21, nil
		}
	}
	return 0, fmt.Errorf("CRD %s serves neither spec.runtimePatches nor spec.podTemplateOverrides: install Trainer 2.1 or later", crd.Name)
}

// hasField looks for a field, in the items where there are lists on the way.
func hasField(schema *apiextensionsv1.JSONSchemaProps, path ...string) bool {
	for _, name := range path {
		if schema != nil && schema.Items != nil {
			schema = schema.Items.Schema
		}
		if schema == nil {
			return false
		}
		field, ok := schema.Properties[name]
		if !ok {
			return false
		}
		schema = &field
	}
	return true
}

// offlineClient is what Trainer's library gets to render with: an API server that
// holds nothing and takes nothing. The JobSet builder asks for the existing JobSet
// to decide whether to write; for us there is none.
type offlineClient struct {
	client.Client
	scheme *runtime.Scheme
}

func (c *offlineClient) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

func (c *offlineClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("rendering must not use the API server")
}

func (c *offlineClient) Scheme() *runtime.Scheme { return c.scheme }

func (c *offlineClient) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

// noIndex takes the field indexes that Trainer's library wants and that rendering never uses.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// Validator asks the plugins of Trainer's library what its webhook would. It is not for several goroutines at a time.
type Validator struct {
	runtime trainerruntime.Runtime
	client  *runtimeClient
}

// NewValidator sets Trainer's library up.
func NewValidator(ctx context.Context, scheme *runtime.Scheme) (*Validator, error) {
	c := &runtimeClient{offlineClient: offlineClient{scheme: scheme}}
	rt, err := trainercore.NewTrainingRuntime(ctx, c, noIndex{}, nil)
	if err != nil {
		return nil, fmt.Errorf("setting up Trainer's runtime library: %w", err)
	}
	return &Validator{runtime: rt, client: c}, nil
}

// Create returns what Trainer refuses a new TrainJob for that uses the runtime, with the
// given patch entries in place of its own.
func (v *Validator) Create(ctx context.Context, job *TrainJob, spec *trainer.TrainingRuntimeSpec, patches []RuntimePatch) (errs field.ErrorList) {
	defer func() {
		if reason := recover(); reason != nil {
			errs = field.ErrorList{field.Invalid(field.NewPath("spec", "runtimeRef"), job.Spec.RuntimeRef.Name, panicked(reason).Error())}
		}
	}()
	typed, err := job.typed(patches)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "runtimePatches"), field.OmitValueType{}, err.Error())}
	}
	v.client.spec = spec
	_, errs = v.runtime.ValidateObjects(ctx, nil, typed.DeepCopy())
	return errs
}

// runtimeClient is an API server with one runtime, of any name.
type runtimeClient struct {
	offlineClient
	spec *trainer.TrainingRuntimeSpec
}

func (c *runtimeClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if rt, ok := into.(*trainer.TrainingRuntime); ok {
		c.spec.DeepCopyInto(&rt.Spec)
		return nil
	}
	return c.offlineClient.Get(ctx, key, into, opts...)
}

// ErrNoRuntime is why there is nothing to ask the API server.
var ErrNoRuntime = errors.New("no runtime that a plain TrainJob can use")

// ProbeQueue is a LocalQueue for dry runs; nobody asks whether it is there.
const ProbeQueue = "dry-run"

// DryRun returns what the webhooks of a cluster make of a plain TrainJob in a queue, or in none, which
// is not stored: it tells who looks after such TrainJobs. Trainer refuses some runtimes
// for a TrainJob as plain as this one, so the first one that it takes decides. They are those that are known already,
// the ClusterTrainingRuntimes and, for clusters without and users who may not list them, the TrainingRuntimes of the namespace.
func DryRun(ctx context.Context, c client.Client, namespace, queue string, known ...trainer.RuntimeRef) (*TrainJob, error) {
	for _, runtime := range known {
		if job, refusal := tryRuntime(ctx, c, namespace, queue, runtime); refusal == nil || !ofTheRuntime(refusal) {
			return job, refusal
		}
	}
	var shared trainer.ClusterTrainingRuntimeList
	err := c.List(ctx, &shared)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	job, refusal := firstTaken(ctx, c, namespace, queue, trainer.ClusterTrainingRuntimeKind, &shared)
	if refusal == nil || !ofTheRuntime(refusal) {
		return job, refusal
	}
	if err != nil {
		refusal = err
	}
	var own trainer.TrainingRuntimeList
	if err := c.List(ctx, &own, client.InNamespace(namespace)); err != nil || len(own.Items) == 0 {
		// Nobody needs these where the others are refused for a reason of their own.
		return nil, refusal
	}
	return firstTaken(ctx, c, namespace, queue, trainer.TrainingRuntimeKind, &own)
}

func firstTaken(ctx context.Context, c client.Client, namespace, queue, kind string, list client.ObjectList) (*TrainJob, error) {
	runtimes, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	refusal := ErrNoRuntime
	for _, runtime := range runtimes {
		var job *TrainJob
		job, refusal = tryRuntime(ctx, c, namespace, queue, trainer.RuntimeRef{Name: runtime.(client.Object).GetName(), Kind: &kind})
		if refusal == nil || !ofTheRuntime(refusal) {
			return job, refusal
		}
	}
	return nil, refusal
}

func tryRuntime(ctx context.Context, c client.Client, namespace, queue string, runtime trainer.RuntimeRef) (*TrainJob, error) {
	// One of any name may be there.
	job := &TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "dry-run-"}}
	if queue != "" {
		job.Labels = map[string]string{kueueconstants.QueueLabel: queue}
	}
	job.Spec.RuntimeRef = runtime
	if err := c.Create(ctx, job, client.DryRunAll); err != nil {
		return nil, err
	}
	return job, nil
}

// ofTheRuntime reports whether another runtime may bring another answer. A webhook that
// cannot be reached, or a timeout, does not depend on it.
func ofTheRuntime(refusal error) bool {
	return errors.Is(refusal, ErrNoRuntime) || apierrors.IsForbidden(refusal) || apierrors.IsInvalid(refusal) || apierrors.IsBadRequest(refusal)
}
