// SPDX-License-Identifier: Apache-2.0

// Package oracle asks one release of Trainer what it makes of TrainJobs: the JobSet that it renders, and the verdict of
// its webhook. It compiles with every release; the modules beside it pin one each.
package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
)

// Question is one line of input.
type Question struct {
	// Runtime is a TrainingRuntimeSpec.
	Runtime json.RawMessage `json:"runtime"`
	Job     json.RawMessage `json:"job"`
	// Validate asks for the webhook's verdict in place of the JobSet.
	Validate bool `json:"validate,omitempty"`
}

// Answer is one line of output.
type Answer struct {
	JobSet json.RawMessage `json:"jobSet,omitempty"`
	// Errors are the webhook's, one text each.
	Errors []string `json:"errors,omitempty"`
	// Failure tells what kept Trainer from an answer. The webhook refuses then, too.
	Failure string `json:"failure,omitempty"`
}

// NewRuntimes is core.New of Trainer, whose parameters differ between releases.
type NewRuntimes func(context.Context, client.Client, client.FieldIndexer) (map[string]trainerruntime.Runtime, error)

// Answers reads questions until the input ends and writes an answer to each.
func Answers(newRuntimes NewRuntimes, in io.Reader, out io.Writer) error {
	scheme := runtime.NewScheme()
	if err := trainer.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering Trainer's types: %w", err)
	}
	world := &world{scheme: scheme, mapper: meta.NewDefaultRESTMapper(nil)}
	runtimes, err := newRuntimes(context.Background(), world, noIndex{})
	if err != nil {
		return fmt.Errorf("setting up Trainer's runtimes: %w", err)
	}
	kind := "ClusterTrainingRuntime." + trainer.GroupVersion.Group
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q Question
		if err := decoder.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a question: %w", err)
		}
		if err := encoder.Encode(answer(runtimes[kind], world, q)); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

// answer turns a panic into a failure, as the webhook server does.
func answer(rt trainerruntime.Runtime, world *world, q Question) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			a = Answer{Failure: fmt.Sprintf("panic: %v", r)}
		}
	}()
	if err := world.set(q); err != nil {
		return Answer{Failure: err.Error()}
	}
	job := &trainer.TrainJob{}
	if err := json.Unmarshal(q.Job, job); err != nil {
		return Answer{Failure: fmt.Sprintf("decoding the TrainJob: %v", err)}
	}
	if q.Validate {
		_, errs := rt.ValidateObjects(context.Background(), nil, job)
		return Answer{Errors: texts(errs)}
	}
	return render(rt, job)
}

func texts(errs field.ErrorList) []string {
	all := make([]string, 0, len(errs))
	for _, err := range errs {
		all = append(all, err.Field+": "+err.Detail)
	}
	return all
}

func render(rt trainerruntime.Runtime, job *trainer.TrainJob) Answer {
	objs, err := rt.NewObjects(context.Background(), job)
	if err != nil {
		return Answer{Failure: err.Error()}
	}
	for _, obj := range objs {
		if js, ok := any(obj).(*jobsetapply.JobSetApplyConfiguration); ok {
			data, err := json.Marshal(js)
			if err != nil {
				return Answer{Failure: err.Error()}
			}
			return Answer{JobSet: data}
		}
	}
	return Answer{Failure: "no JobSet comes out of the runtime"}
}

// world is the API server that Trainer sees: one runtime.
type world struct {
	client.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	runtime trainer.ClusterTrainingRuntime
}

func (w *world) set(q Question) error {
	w.runtime = trainer.ClusterTrainingRuntime{}
	if err := json.Unmarshal(q.Runtime, &w.runtime.Spec); err != nil {
		return fmt.Errorf("decoding the runtime: %w", err)
	}
	return nil
}

func (w *world) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if obj, ok := obj.(*trainer.ClusterTrainingRuntime); ok {
		w.runtime.DeepCopyInto(obj)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

// Apply takes the runtime snapshot that Trainer 2.3 makes.
func (w *world) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

func (w *world) Scheme() *runtime.Scheme     { return w.scheme }
func (w *world) RESTMapper() meta.RESTMapper { return w.mapper }

// noIndex takes the field indexes that Trainer's library wants and that answers never use.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
