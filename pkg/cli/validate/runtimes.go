// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// runtimes are those of files, then those of a cluster or, where none is asked, those that the release ships.
type runtimes struct {
	*manifest.Runtimes

	schema    *releases.Schema
	namespace string             // for what names none
	cluster   client.Reader      // nil when none is asked
	stock     *manifest.Runtimes // those that the release ships
}

// newRuntimes leaves out what cannot be decoded: that is told of each document.
func newRuntimes(release trainjob.TrainerVersion, files []manifest.File, namespace string, cluster client.Reader) (*runtimes, error) {
	data, err := releases.Runtimes(release)
	if err != nil {
		return nil, err
	}
	schema, err := releases.NewSchema(release, releases.Runtime)
	if err != nil {
		return nil, err
	}
	r := &runtimes{schema: schema, namespace: namespace, cluster: cluster}
	r.stock, _ = manifest.NewRuntimes(schema, []manifest.File{*manifest.Parse("Trainer "+release.String(), data)}, namespace, nil)
	elsewhere := cluster
	if cluster == nil {
		elsewhere = r.stock
	}
	r.Runtimes, _ = manifest.NewRuntimes(schema, files, namespace, elsewhere)
	return r, nil
}

// assumed reports whether the runtime of a TrainJob is a shipped one, of which nobody said that the cluster has it.
func (r *runtimes) assumed(job *trainjob.TrainJob) bool {
	ref, key := job.Spec.RuntimeRef, client.ObjectKey{Name: job.Spec.RuntimeRef.Name}
	return r.cluster == nil && ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind) == trainer.ClusterTrainingRuntimeKind &&
		!r.Has(key) && r.stock.Has(key)
}

func (c *checker) checkRuntimes(ctx context.Context, r *report, doc *manifest.Document) {
	for _, kind := range []string{trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind} {
		found, err := doc.Objects(trainer.GroupVersion.Group, kind)
		if err != nil {
			r.Runtimes++
			r.Findings = append(r.Findings, unreadable(doc, err))
			return
		}
		for i := range found {
			r.Runtimes++
			r.add(&found[i], "", refused, c.runtimeErrors(ctx, found[i].JSON))
		}
	}
}

// runtimeErrors is what the API server, by the schema of the release, and Trainer's webhook refuse a runtime for.
func (c *checker) runtimeErrors(ctx context.Context, data []byte) field.ErrorList {
	stored, errs := c.files.schema.Check(ctx, data)
	errs = append(errs, notStrings(data)...)
	var rt trainer.ClusterTrainingRuntime
	if err := json.Unmarshal(stored, &rt); err != nil {
		if len(errs) == 0 {
			errs = append(errs, undecodable(err))
		}
		return errs
	}
	errs = append(errs, runtimeMetadata(&rt.ObjectMeta)...)
	// Since 2.3 a label takes a runtime out of Trainer's webhook, and the runtimes that Trainer ships have it.
	if c.generation >= trainjob.Trainer23 && rt.Labels["trainer.kubeflow.org/webhook-validation"] == "disabled" {
		return errs
	}
	if _, err := (&webhooks.ClusterTrainingRuntimeValidator{}).ValidateCreate(ctx, &rt); err != nil {
		errs = append(errs, fieldErrors(err)...)
	}
	return errs
}

func runtimeMetadata(metadata *metav1.ObjectMeta) field.ErrorList {
	errs := rules.Metadata(metadata)
	path := field.NewPath("metadata", "name")
	if metadata.Name == "" && metadata.GenerateName == "" {
		errs = append(errs, field.Required(path, "name the runtime"))
	}
	if why := apivalidation.NameIsDNSSubdomain(metadata.Name, false); metadata.Name != "" && len(why) > 0 {
		errs = append(errs, field.Invalid(path, metadata.Name, strings.Join(why, "; ")))
	}
	return errs
}

// fieldErrors takes errors of fields out of what holds several.
func fieldErrors(err error) field.ErrorList {
	all := []error{err}
	if aggregate, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		all = aggregate.Errors()
	}
	var errs field.ErrorList
	for _, err := range all {
		of := new(field.Error)
		if !errors.As(err, &of) {
			of = field.Invalid(nil, field.OmitValueType{}, err.Error())
		}
		// Whole objects in Go's notation help nobody.
		of.BadValue = field.OmitValueType{}
		errs = append(errs, of)
	}
	return errs
}
