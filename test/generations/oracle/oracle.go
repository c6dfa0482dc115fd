// SPDX-License-Identifier: Apache-2.0

// Command oracle asks one release of Trainer what it makes of TrainJobs: the JobSet that it renders, and the verdict of
// its webhook. It compiles with every release: its own module has the oldest, those of the local control plane one each.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"reflect"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"
)

type question struct {
	// Runtime is a TrainingRuntimeSpec.
	Runtime json.RawMessage `json:"runtime"`
	Job     json.RawMessage `json:"job"`
	// Validate asks for the webhook's verdict in place of the JobSet.
	Validate bool `json:"validate,omitempty"`
}

type answer struct {
	JobSet *jobsetapply.JobSetApplyConfiguration `json:"jobSet,omitempty"`
	// Errors are the webhook's, one text each.
	Errors []string `json:"errors,omitempty"`
	// Failure tells what kept Trainer from an answer. The webhook refuses then, too.
	Failure string `json:"failure,omitempty"`
}

// main reads questions until the input ends and writes an answer to each.
func main() {
	world := &world{scheme: runtime.NewScheme(), mapper: meta.NewDefaultRESTMapper(nil)}
	utilruntime.Must(trainer.AddToScheme(world.scheme))
	rt := newRuntimes(world)["ClusterTrainingRuntime."+trainer.GroupVersion.Group]
	for in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout); ; {
		var q question
		if err := in.Decode(&q); err == io.EOF {
			return
		} else if err != nil {
			log.Fatalf("reading a question: %v", err)
		}
		utilruntime.Must(out.Encode(ask(rt, world, q)))
	}
}

// newRuntimes calls core.New, whose parameters differ between releases: what comes after the first three is nil.
func newRuntimes(world *world) map[string]trainerruntime.Runtime {
	makes := reflect.ValueOf(core.New)
	args := []reflect.Value{reflect.ValueOf(context.Background()), reflect.ValueOf(world), reflect.ValueOf(world)}
	for i := len(args); i < makes.Type().NumIn(); i++ {
		args = append(args, reflect.Zero(makes.Type().In(i)))
	}
	out := makes.Call(args)
	if err := out[1].Interface(); err != nil {
		log.Fatalf("setting up Trainer's runtimes: %v", err)
	}
	return out[0].Interface().(map[string]trainerruntime.Runtime)
}

// ask turns a panic into a failure, as the webhook server does.
func ask(rt trainerruntime.Runtime, world *world, q question) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{Failure: fmt.Sprintf("panic: %v", r)}
		}
	}()
	world.runtime = trainer.ClusterTrainingRuntime{}
	job := &trainer.TrainJob{}
	if err := errors.Join(json.Unmarshal(q.Runtime, &world.runtime.Spec), json.Unmarshal(q.Job, job)); err != nil {
		return answer{Failure: err.Error()}
	}
	if q.Validate {
		_, errs := rt.ValidateObjects(context.Background(), nil, job)
		for _, err := range errs {
			a.Errors = append(a.Errors, err.Field+": "+err.Detail)
		}
		return a
	}
	return render(rt, job)
}

func render(rt trainerruntime.Runtime, job *trainer.TrainJob) answer {
	objs, err := rt.NewObjects(context.Background(), job)
	if err != nil {
		return answer{Failure: err.Error()}
	}
	for _, obj := range objs {
		if js, ok := any(obj).(*jobsetapply.JobSetApplyConfiguration); ok {
			return answer{JobSet: js}
		}
	}
	return answer{Failure: "no JobSet comes out of the runtime"}
}

// world is the API server that Trainer sees: one runtime.
type world struct {
	client.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper

	runtime trainer.ClusterTrainingRuntime
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

// IndexField takes what Trainer's library wants and answers never use.
func (w *world) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
