// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var runtimeRefPath = field.NewPath("spec", "runtimeRef")

type checker struct {
	generation trainjob.TrainerVersion
	files      *runtimes
	runtimes   *trainjob.Runtimes
	renderer   *trainjob.Renderer
	validator  *trainjob.Validator
}

func (c *checker) check(ctx context.Context, r *report, doc *manifest.Document) error {
	jobs, err := doc.TrainJobs()
	if err != nil {
		r.TrainJobs++
		r.Findings = append(r.Findings, unreadable(doc, err))
	}
	r.Findings = append(r.Findings, unknownKinds(doc)...)
	for i := range jobs {
		r.TrainJobs++
		if err := c.checkOne(ctx, r, &jobs[i]); err != nil {
			return err
		}
	}
	if err == nil {
		c.checkRuntimes(ctx, r, doc)
	}
	return nil
}

// unreadable is about a document that cannot be read as objects.
func unreadable(doc *manifest.Document, err error) finding {
	line, text := doc.Complaint(err)
	return finding{File: doc.Path, Line: line, Severity: refused, Reason: unread, Message: text}
}

func (c *checker) checkOne(ctx context.Context, r *report, object *manifest.Object) error {
	errs := rules.Fields(c.generation, object.JSON)
	errs = append(errs, without(rules.Pods(c.generation, object.JSON), errs)...)
	errs = append(errs, notStrings(object.JSON)...)
	// What cannot be read is among the fields above, but for metadata.
	var job trainjob.TrainJob
	unread := json.Unmarshal(object.JSON, &job)
	if served := trainer.GroupVersion.String(); job.APIVersion != served {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), job.APIVersion, []string{served}))
	}
	more, doubts, err := c.verdict(ctx, &job, procsOf(object.JSON), unread == nil)
	errs = append(errs, without(more, errs)...)
	if unread != nil && len(errs) == 0 {
		errs = append(errs, undecodable(unread))
	}
	r.add(object, object.Name(), refused, errs)
	r.add(object, object.Name(), doubtful, doubts)
	if at := runtimeRefPath.Child("name").String(); c.files.assumed(&job) {
		r.Findings = append(r.Findings, finding{
			File: object.Document.Path, Line: object.LineOf(at), TrainJob: object.Name(), Severity: told, Field: at, Reason: assumed,
			Message: fmt.Sprintf("no file has runtime %s: the one that Trainer %s ships is taken", job.Spec.RuntimeRef.Name, c.generation),
		})
	}
	return err
}

// procsOf returns the numProcPerNode of a TrainJob. In Trainer 2.1 it may be a text, of which the types know nothing.
func procsOf(data []byte) *intstr.IntOrString {
	var object struct {
		Spec struct {
			Trainer struct{ NumProcPerNode *intstr.IntOrString }
		}
	}
	_ = json.Unmarshal(data, &object) // What cannot be read is told by the rules for fields.
	return object.Spec.Trainer.NumProcPerNode
}

// notStrings is about labels and annotations that are no strings: YAML makes numbers and truth of what has no quotes.
func notStrings(data []byte) field.ErrorList {
	var object struct {
		Metadata struct{ Labels, Annotations map[string]any }
	}
	_ = json.Unmarshal(data, &object) // What cannot be read so is told by undecodable.
	var errs field.ErrorList
	kinds := map[reflect.Kind]string{reflect.Float64: "number", reflect.Bool: "bool"} // Those that could be a string.
	for name, values := range map[string]map[string]any{"labels": object.Metadata.Labels, "annotations": object.Metadata.Annotations} {
		for key, value := range values {
			if is := kinds[reflect.ValueOf(value).Kind()]; is != "" {
				errs = append(errs, field.Invalid(field.NewPath("metadata", name).Key(key), field.OmitValueType{}, "it must be a string and is a "+is+": write it in quotes"))
			}
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	return errs
}

// undecodable is about an object that is in order by its schema, which says nothing of metadata, and cannot be read.
func undecodable(err error) *field.Error {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
		return field.Invalid(field.NewPath(wrong.Field), field.OmitValueType{}, fmt.Sprintf("it must be a %s and is a %s", wrong.Type, wrong.Value))
	}
	return field.Invalid(field.NewPath("metadata"), field.OmitValueType{}, err.Error())
}

// without leaves out errors about fields that others are about: the same is often checked by those that take the TrainJob,
// and again by those that make something of it. Much that is wrong with a runtime is told of one field.
func without(errs, others field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(others, func(other *field.Error) bool {
			return err.Field == other.Field && (err.Field != runtimeRefPath.String() || err.Detail == other.Detail)
		})
	})
}

// verdict checks the patches and, if they are in order, the whole TrainJob. The error is of a cluster without an answer.
func (c *checker) verdict(ctx context.Context, job *trainjob.TrainJob, procs *intstr.IntOrString, whole bool) (errs, doubts field.ErrorList, err error) {
	runtime, missing, err := c.runtime(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	verdict := rules.Create(c.generation, runtime, &job.Spec)
	// What Kueue reads from labels and annotations, with a queue or without.
	ofKueue := append(jobframework.ValidateJobOnCreate(queues.Job{TrainJob: job}), kueuelib.NoTimeLimit(job.Labels)...)
	errs, doubts = slices.Concat(verdict.Errors, verdict.Unmade, ofKueue), verdict.Warnings
	switch {
	case missing == nil:
	case missing.Type == field.ErrorTypeNotSupported || missing.Type == field.ErrorTypeInvalid && c.files.cluster != nil:
		return append(errs, missing), doubts, nil
	default:
		return errs, append(doubts, missing), nil
	}
	if len(verdict.Errors)+len(verdict.Unmade) > 0 || !whole {
		return errs, doubts, nil
	}
	moreErrs, moreDoubts := c.rendered(ctx, job, procs, runtime)
	return append(errs, moreErrs...), append(doubts, moreDoubts...), nil
}

// runtime finds the TrainJob's, or tells that it is missing or, as NotSupported, of a group or kind that cannot be there, or,
// as Forbidden, that the user may not read it.
func (c *checker) runtime(ctx context.Context, job *trainjob.TrainJob) (*trainer.TrainingRuntimeSpec, *field.Error, error) {
	// Of a TrainJob that was stored before there may be a snapshot, which does not count for a new one.
	job = c.named(job)
	job.UID = ""
	ref, group := job.Spec.RuntimeRef, trainer.GroupVersion.Group
	if of := ptr.Deref(ref.APIGroup, group); of != group {
		return nil, field.NotSupported(runtimeRefPath.Child("apiGroup"), of, []string{group}), nil
	}
	runtime, err := c.runtimes.For(ctx, job)
	switch {
	case err == nil:
		return runtime, nil, nil
	case errors.Is(err, trainjob.ErrRuntimeUnsupported):
		kinds := []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind}
		return nil, field.NotSupported(runtimeRefPath.Child("kind"), ptr.Deref(ref.Kind, ""), kinds), nil
	case apierrors.IsForbidden(err):
		what := fmt.Sprintf("you may not get %s %s of the cluster, so what depends on it is not checked: name a file that has it with --runtimes",
			ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind), ref.Name)
		return nil, field.Forbidden(runtimeRefPath.Child("name"), what), nil
	case !errors.Is(err, trainjob.ErrRuntimeNotFound):
		return nil, nil, fmt.Errorf("reading the runtime of TrainJob %s: %w", job.Name, err)
	}
	why := err.Error()
	if c.files.cluster == nil {
		why = fmt.Sprintf("no file has this runtime, and Trainer %s ships none of this name, so what depends on it is not checked: name a file that has it with --runtimes, or use --from-cluster", c.generation)
	}
	return nil, field.Invalid(runtimeRefPath.Child("name"), ref.Name, why), nil
}

// rendered asks Trainer's plugins, looks at what is made of the TrainJob and, for one with a queue, makes its PodSets.
func (c *checker) rendered(ctx context.Context, job *trainjob.TrainJob, procs *intstr.IntOrString, runtime *trainer.TrainingRuntimeSpec) (errs, doubts field.ErrorList) {
	f := patch.Of(c.generation)
	patches, err := f.All(&job.Spec)
	if err != nil {
		return field.ErrorList{field.Invalid(f.Path(), field.OmitValueType{}, err.Error())}, nil
	}
	errs, doubts = c.plugins(ctx, job, procs, runtime, patches)
	if len(errs) > 0 {
		return errs, doubts
	}
	if job.Labels[kueueconstants.QueueLabel] != "" {
		errs = byIndex(podset.Validate(ctx, c.renderer, job, runtime, f), job)
	}
	made := c.made(ctx, c.named(job), runtime, patches)
	return append(errs, without(made, errs)...), doubts
}

// named is a copy of a TrainJob with a name and namespace as the API server would make them.
func (c *checker) named(job *trainjob.TrainJob) *trainjob.TrainJob {
	job = job.DeepCopy()
	job.Name = cmp.Or(job.Name, job.GenerateName+"abcde")
	job.Namespace = cmp.Or(job.Namespace, c.files.namespace)
	return job
}

// byIndex turns the managers in paths into the places of their entries, for lines to be found.
func byIndex(errs field.ErrorList, job *trainjob.TrainJob) field.ErrorList {
	for _, err := range errs {
		for i, entry := range job.Spec.RuntimePatches {
			path := patch.Of(newest).Path()
			err.Field = strings.Replace(err.Field, path.Key(entry.Manager).String(), path.Index(i).String(), 1)
		}
	}
	return errs
}

// unknownKinds tells of objects of Trainer's group whose kind it does not have: a Trainjob would not be checked.
func unknownKinds(doc *manifest.Document) []finding {
	type object struct{ APIVersion, Kind string }
	var content struct {
		object
		Items []object
	}
	data, err := doc.JSON()
	if err != nil || json.Unmarshal(data, &content) != nil {
		return nil // It is not an object of Trainer's, which could be read.
	}
	known := []string{trainer.TrainJobKind, trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind}
	var found []finding
	check := func(path *field.Path, o object) {
		isKnown := slices.Contains(known, strings.TrimSuffix(o.Kind, "List"))
		if isKnown || !strings.HasPrefix(o.APIVersion, trainer.GroupVersion.Group+"/") {
			return
		}
		at := path.Child("kind").String()
		err := field.NotSupported(nil, o.Kind, known)
		found = append(found, finding{File: doc.Path, Line: doc.LineOf(at), Severity: doubtful, Field: at, Reason: string(err.Type), Message: err.ErrorBody()})
	}
	check(nil, content.object)
	for i, item := range content.Items {
		check(field.NewPath("items").Index(i), item)
	}
	return found
}
