// SPDX-License-Identifier: Apache-2.0

// Package version is the command that tells which releases of the plugin, kueue-trainer, Kueue,
// Trainer and JobSet there are, and whether they go together.
package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

const long = `Tell the releases of the plugin, kueue-trainer, Kueue, Trainer and JobSet, and whether they go
together.

The release of a part is that of its Deployment's image, or its label
app.kubernetes.io/version; what neither tells, or may not be read, is <unknown>.

Exit codes: 0 where nothing is wrong, as far as that can be seen; 2 where TrainJobs cannot be
queued; 3 where releases were not made for each other; 4 where nothing is known to be wrong and
you may not read all that tells; 1 where the cluster does not answer.`

const example = `  # All of them
  kubectl trainjob version

  # The plugin alone, without asking a cluster
  kubectl trainjob version --client

  # For scripts
  kubectl trainjob version -o json`

// Report is what the command tells. Its JSON is for scripts: names stay, new ones may come.
type Report struct {
	Plugin version.Info `json:"plugin"`
	// Parts are those of the cluster; none with --client.
	Parts []Part `json:"parts,omitempty"`
	// Together tells whether they go together; empty with --client.
	Together Together  `json:"together,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	// Unseen are the kinds that the user may not read, of those that tell releases.
	Unseen []string `json:"unseen,omitempty"`
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	alone, format := false, ""
	cmd := &cobra.Command{
		Use: "version", Short: "Tell the releases of plugin, kueue-trainer, Kueue, Trainer and JobSet, and whether they go together",
		Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := Report{Plugin: version.Get()}
			var errCluster error
			if !alone {
				errCluster = report.look(cmd.Context(), flags, streams.ErrOut)
			}
			// The plugin's is known whatever the cluster says.
			if err := report.print(streams.Out, format); err != nil {
				return err
			}
			return cmp.Or(errCluster, report.err())
		},
	}
	cmd.Flags().BoolVar(&alone, "client", false, "tell the plugin's alone")
	show.OutputFlag(cmd, &format, show.JSON, show.YAML)
	return cmd
}

func (r *Report) look(ctx context.Context, flags cluster.Flags, notes io.Writer) error {
	c, err := flags.Client()
	if err != nil {
		return err
	}
	l := &loader{client: c}
	if r.Parts, err = l.parts(ctx); err != nil {
		return err
	}
	r.Unseen = l.unseen
	for _, kind := range l.unseen {
		fmt.Fprintf(notes, "note: you may not read %s, so something is <unknown>; ClusterRole kueue-trainer-queues-viewer tells what Trainer serves, an admin sees all\n", kind)
	}
	judge(r)
	return nil
}

func (r *Report) err() error {
	breaks := slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Breaks })
	switch {
	case breaks:
		return exit.With(exit.Findings, errors.New("TrainJobs cannot be queued with these"))
	case len(r.Problems) > 0:
		return exit.With(exit.Warnings, errors.New("these were not made for each other"))
	case r.Together == Unknown && len(r.Unseen) > 0:
		return exit.With(exit.Unseen, errors.New("you may not read all that tells whether they go together"))
	}
	return nil
}

func (r *Report) print(out io.Writer, format string) error {
	if format != "" {
		return show.Encode(out, format, r)
	}
	paint := show.Painter(out)
	table := show.NewTable("PART", "VERSION", "WANTED")
	table.Row("kubectl trainjob", r.Plugin.Version, "-")
	for i := range r.Parts {
		p := &r.Parts[i]
		table.Row(p.Name, p.text(), cmp.Or(p.Wants, "-"))
	}
	if err := table.Print(out, paint); err != nil {
		return err
	}
	switch known := func(p Part) bool { return p.Version+p.Generation != "" }; {
	case r.Together == Yes:
		fmt.Fprintf(out, "\n%s\n", paint.Green("They go together."))
	case r.Together == Unknown && !slices.ContainsFunc(r.Parts, known):
		fmt.Fprintf(out, "\n%s\n", paint.Yellow("Nothing can be seen that tells whether they go together."))
	case r.Together == Unknown:
		fmt.Fprintf(out, "\n%s\n", paint.Yellow("They go together, as far as that can be seen."))
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(out, "\n%s\n%s %s\n", paint.Red(problem.Message+"."), paint.Bold("What helps:"), problem.Remedy)
	}
	return nil
}

func (p *Part) text() string {
	switch {
	case p.Missing:
		return "<none>"
	case p.Version == "" && p.Generation != "":
		return p.Generation + " (served)"
	case p.Generation != "":
		return fmt.Sprintf("%s (serves %s)", p.Version, p.Generation)
	}
	return cmp.Or(p.Version, "<unknown>")
}

// loader reads the parts. What the user may not read is noted, once of each kind; err is the first
// other error.
type loader struct {
	client client.Client
	unseen []string
	err    error
}

// parts returns what can be told of them, in the order in which they are installed.
func (l *loader) parts(ctx context.Context) ([]Part, error) {
	var parts []Part
	for _, of := range []cluster.Part{cluster.Kueue, cluster.JobSet, cluster.Trainer, cluster.Manager} {
		of, err := cluster.Placed(ctx, l.client, of)
		if err != nil {
			return nil, err
		}
		parts = append(parts, l.part(ctx, of))
		if l.err != nil {
			return nil, fmt.Errorf("looking for %s: %w", of.Name, l.err)
		}
	}
	return parts, nil
}

func (l *loader) part(ctx context.Context, of cluster.Part) Part {
	var crd apiextensionsv1.CustomResourceDefinition
	var deployment appsv1.Deployment
	var configMaps corev1.ConfigMapList
	deployed := l.get(ctx, "deployments.apps", client.ObjectKey{Namespace: of.Namespace, Name: of.Deployment}, &deployment)
	installed := deployed
	switch {
	case of.CRD != "":
		installed = l.get(ctx, "customresourcedefinitions.apiextensions.k8s.io", client.ObjectKey{Name: of.CRD}, &crd)
	case deployed != there: // It can also run elsewhere.
		installed = l.get(ctx, "mutatingwebhookconfigurations.admissionregistration.k8s.io", client.ObjectKey{Name: of.Webhook}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	}
	if of.ConfigMap != "" {
		l.seen("configmaps", l.client.List(ctx, &configMaps, client.InNamespace(of.Namespace)))
	}
	p := Part{Name: of.Name, Missing: installed == missing && (of.CRD != "" || deployed == missing)}
	p.unseen = !p.Missing && installed != there && deployed != there
	p.Version = cluster.Release(&deployment, cluster.ConfigMapOf(&deployment, configMaps.Items, of.ConfigMap))
	if installed == there && of.CRD == trainjob.CRDName {
		// What is none of those that are known is none.
		generation, _ := trainjob.TrainerVersionOf(&crd)
		p.Generation = generation.String()
	}
	return p
}

type sight int

const (
	missing sight = iota
	hidden
	there
)

func (l *loader) get(ctx context.Context, kind string, key client.ObjectKey, obj client.Object) sight {
	return l.seen(kind, l.client.Get(ctx, key, obj))
}

func (l *loader) seen(kind string, err error) sight {
	switch {
	case err == nil:
		return there
	case !apierrors.IsForbidden(err):
		l.err = cmp.Or(l.err, client.IgnoreNotFound(err))
		return missing
	case !slices.Contains(l.unseen, kind):
		l.unseen = append(l.unseen, kind)
	}
	return hidden
}
