// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// checker checks TrainJobs by the rules of a release.
type checker struct {
	generation trainjob.TrainerVersion
	files      *runtimes
	runtimes   *trainjob.Runtimes
	renderer   *trainjob.Renderer
	validator  *trainjob.Validator
}

func newChecker(ctx context.Context, generation trainjob.TrainerVersion, files *runtimes) (*checker, error) {
	scheme, err := cluster.Scheme()
	if err != nil {
		return nil, err
	}
	c := &checker{generation: generation, files: files, runtimes: trainjob.NewRuntimes(files, nil).As(generation)}
	if c.renderer, err = trainjob.NewRenderer(ctx, scheme); err != nil {
		return nil, err
	}
	c.validator, err = trainjob.NewValidator(ctx, scheme, c.renderer)
	return c, err
}

// check reports on the TrainJobs of a document.
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
	return nil
}

// unreadable is about a document that cannot be read as objects.
func unreadable(doc *manifest.Document, err error) finding {
	f := finding{File: doc.Path, Line: doc.Line, Severity: refused, Message: err.Error()}
	if at := new(manifest.Error); errors.As(err, &at) {
		f.Line, f.Message = at.Line, at.Text
	}
	return f
}

func (c *checker) checkOne(ctx context.Context, r *report, object *manifest.Object) error {
	r.add(object, refused, rules.Fields(c.generation, object.JSON))
	r.add(object, doubtful, rules.Pods(object.JSON))
	// What cannot be read is among the fields above.
	job, unread := rules.Decode[trainjob.TrainJob](object.JSON)
	r.add(object, refused, version(&job))
	errs, doubts, err := c.verdict(ctx, &job, len(unread) == 0)
	r.add(object, refused, errs)
	r.add(object, doubtful, doubts)
	return err
}

func version(job *trainjob.TrainJob) field.ErrorList {
	if served := trainer.GroupVersion.String(); job.APIVersion != served {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), job.APIVersion, []string{served})}
	}
	return nil
}

// verdict checks the patches and, if they are in order, what becomes of the whole
// TrainJob with its runtime. The error is of a cluster that does not answer.
func (c *checker) verdict(ctx context.Context, job *trainjob.TrainJob, whole bool) (errs, doubts field.ErrorList, err error) {
	runtime, missing, err := c.runtime(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	verdict := rules.Create(c.generation, runtime, rules.TrainJob{
		Suspended: job.Suspended(), Overrides: job.Spec.PodTemplateOverrides, Patches: job.Spec.RuntimePatches,
	})
	errs, doubts = slices.Concat(verdict.Errors, queueLabels(job)), verdict.Warnings
	switch {
	case missing == nil:
	case missing.Type == field.ErrorTypeNotSupported || c.files.cluster != nil:
		return append(errs, missing), doubts, nil
	default:
		return errs, append(doubts, missing), nil
	}
	if len(verdict.Errors) > 0 || !whole {
		return errs, doubts, nil
	}
	moreErrs, moreDoubts := c.rendered(ctx, job, runtime)
	return append(errs, moreErrs...), append(doubts, moreDoubts...), nil
}

// runtime finds the TrainJob's, or tells that it is missing or, as NotSupported, of a kind
// that cannot be there.
func (c *checker) runtime(ctx context.Context, job *trainjob.TrainJob) (*trainer.TrainingRuntimeSpec, *field.Error, error) {
	// Of a TrainJob that was stored before there may be a snapshot, which does not count
	// for a new one.
	job = job.DeepCopy()
	job.UID = ""
	if job.Namespace == "" {
		job.Namespace = c.files.namespace
	}
	path := field.NewPath("spec", "runtimeRef")
	runtime, err := c.runtimes.For(ctx, job)
	switch {
	case err == nil:
		return runtime, nil, nil
	case errors.Is(err, trainjob.ErrRuntimeNotFound) && c.files.cluster == nil:
		return nil, field.Invalid(path.Child("name"), job.Spec.RuntimeRef.Name,
			"no file has this runtime, so what depends on it is not checked: name a file that has it with --runtimes, or use --from-cluster"), nil
	case errors.Is(err, trainjob.ErrRuntimeUnsupported):
		kinds := []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind}
		return nil, field.NotSupported(path.Child("kind"), ptr.Deref(job.Spec.RuntimeRef.Kind, ""), kinds), nil
	case errors.Is(err, trainjob.ErrRuntimeNotFound):
		return nil, field.Invalid(path.Child("name"), job.Spec.RuntimeRef.Name, err.Error()), nil
	}
	return nil, nil, fmt.Errorf("reading the runtime of TrainJob %s: %w", job.Name, err)
}

// queueLabels checks what Kueue reads from the labels.
func queueLabels(job *trainjob.TrainJob) field.ErrorList {
	return append(jobframework.ValidateQueueName(job), jobframework.ValidatePrebuiltWorkloadName(job)...)
}

// rendered asks Trainer's plugins and, for a TrainJob with a queue, makes its PodSets.
func (c *checker) rendered(ctx context.Context, job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec) (errs, doubts field.ErrorList) {
	f := patch.Of(c.generation)
	patches, err := f.All(&job.Spec)
	if err != nil {
		return field.ErrorList{field.Invalid(f.Path(), field.OmitValueType{}, err.Error())}, nil
	}
	errs, doubts = c.plugins(ctx, job, runtime, patches)
	if job.Labels[kueueconstants.QueueLabel] == "" || len(errs) > 0 {
		return errs, doubts
	}
	return byIndex(podset.Validate(ctx, c.renderer, job, runtime, f), job), doubts
}

// byIndex turns the managers in paths into the places of their entries, for lines to be found.
func byIndex(errs field.ErrorList, job *trainjob.TrainJob) field.ErrorList {
	for _, err := range errs {
		for i, entry := range job.Spec.RuntimePatches {
			err.Field = strings.Replace(err.Field, patch.Path.Key(entry.Manager).String(), patch.Path.Index(i).String(), 1)
		}
	}
	return errs
}
