// SPDX-License-Identifier: Apache-2.0

// Package validate is the command that checks TrainJob manifests by the rules of every release of Trainer, and of Kueue.
package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/webhooks"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const validateLong = `Check TrainJob manifests by the rules of a Trainer release: fields and their types, the
patches, what Trainer's webhook refuses and, for TrainJobs with a queue, what Kueue
cannot take.

Runtimes in the files are checked, too.

No cluster is asked. What depends on the runtime is checked against the runtimes in the
files of -f and --runtimes, then against those that the release ships; with
--from-cluster, the release and the runtimes that no file has come from the cluster.

An error is what is refused, or what no pod can ever come of: JobSet or the API server
refuses what Trainer makes of it. Every error is printed with its file and line; -o sarif is
for code scanning, -o github has workflow commands, which become annotations. The exit
code is 2 with errors, 3 with warnings only, 1 if there is no TrainJob and no runtime.`

const validateExample = `  # For the newest Trainer, with runtimes from files
  kubectl trainjob validate -f manifests/ --runtimes runtimes/

  # For Trainer 2.1
  kubectl trainjob validate -f job.yaml --trainer 2.1

  # As the cluster would see it
  kubectl trainjob validate -f job.yaml --from-cluster

  # As annotations of a pull request, in a GitHub workflow
  kubectl trainjob validate -f manifests/ -R -o github`

// newest is the release whose rules count when nothing says otherwise.
const newest = trainjob.Trainer23

type options struct {
	files           manifest.Flags
	runtimes        []string
	fromCluster     bool
	trainer, output string

	flags   cluster.Flags
	streams genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use: "validate -f FILE|DIR|-", Short: "Check TrainJob manifests, with the lines of what is wrong",
		Long: validateLong, Example: validateExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.files.AddTo(cmd, "")
	cmd.Flags().StringSliceVar(&o.runtimes, "runtimes", nil, "files or directories with runtimes")
	show.OneOf(cmd, &o.trainer, "trainer", "the release whose rules count: 2.1, 2.2 or 2.3 (default the newest, with --from-cluster the cluster's)", "2.1", "2.2", "2.3")
	cmd.Flags().BoolVar(&o.fromCluster, "from-cluster", false, "ask the cluster for its Trainer release and for runtimes that no file has")
	show.OutputFlag(cmd, &o.output, show.JSON, show.YAML, sarifFormat, githubFormat)
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	files, err := o.files.Read(o.streams.In)
	if err != nil {
		return err
	}
	beside, err := manifest.Read(o.runtimes, o.files.Recursive, o.streams.In)
	if err != nil {
		return err
	}
	seen := sets.New[string]()
	files, beside = once(files, seen), once(beside, seen)
	c, err := o.checker(ctx, append(beside, files...))
	if err != nil {
		return err
	}
	r := &report{Trainer: c.generation.String()}
	for _, file := range beside {
		for i := range file.Documents {
			if doc := &file.Documents[i]; doc.Err != nil {
				r.Findings = append(r.Findings, unreadable(doc, doc.Err))
			} else {
				c.checkRuntimes(ctx, r, doc)
			}
		}
	}
	for _, file := range files {
		for i := range file.Documents {
			if err := c.check(ctx, r, &file.Documents[i]); err != nil {
				return err
			}
		}
	}
	r.sort()
	return o.print(r)
}

// once leaves out files that have been seen: those of --runtimes may be below those of -f.
func once(files []manifest.File, seen sets.Set[string]) []manifest.File {
	return slices.DeleteFunc(files, func(file manifest.File) bool {
		path := file.Path
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		defer seen.Insert(path)
		return seen.Has(path)
	})
}

// checker finds out which rules count, and which runtimes there are.
func (o *options) checker(ctx context.Context, files []manifest.File) (*checker, error) {
	generation := newest
	for g := trainjob.Trainer21; g < newest; g++ {
		if g.String() == o.trainer {
			generation = g
		}
	}
	namespace, err := o.flags.InNamespace(false)
	if err != nil {
		return nil, err
	}
	var asked client.Reader
	if o.fromCluster {
		c, err := o.flags.Client()
		if err != nil {
			return nil, err
		}
		asked = c
		if o.trainer == "" {
			generation, err = cluster.Generation(ctx, c)
			switch {
			case apierrors.IsForbidden(err):
				return nil, exit.With(exit.Unseen, fmt.Errorf("you may not get CRD %s, which tells the cluster's release: name it with --trainer, or ask an admin for ClusterRole kueue-trainer-queues-viewer", trainjob.CRDName))
			case err != nil:
				return nil, err
			}
		}
	}
	c := &checker{generation: generation}
	if c.files, err = newRuntimes(generation, files, namespace, asked); err != nil {
		return nil, err
	}
	c.runtimes = trainjob.NewRuntimes(c.files, nil).As(generation)
	scheme := cluster.Scheme()
	if c.renderer, err = trainjob.NewRenderer(ctx, scheme); err != nil {
		return nil, err
	}
	c.validator, err = trainjob.NewValidator(ctx, scheme)
	return c, err
}

// print writes the report, and fails by what is in it.
func (o *options) print(r *report) error {
	if err := r.print(o.streams.Out, o.output); err != nil {
		return err
	}
	switch {
	case r.TrainJobs+r.Runtimes == 0:
		return fmt.Errorf("there is no TrainJob and no runtime in %s: name files that have one, of apiVersion %s and kind %s",
			strings.Join(o.files.Filenames, ", "), trainer.GroupVersion, trainer.TrainJobKind)
	case r.count(refused) > 0:
		return exit.With(exit.Findings, errors.New("not every TrainJob is valid"))
	case r.count(doubtful) > 0:
		return exit.With(exit.Warnings, errors.New("there are warnings"))
	}
	return nil
}

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
		found, err := doc.Objects(kind, trainer.GroupVersion.Group)
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
