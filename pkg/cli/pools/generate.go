// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

const generateLong = `Write Kueue's objects for the GPU pools of this cluster, read from its nodes.

Nodes with the same GPUs, divided the same way, behind the same taints make a pool, and a
pool makes a ResourceFlavor whose labels pick exactly these nodes. Every team gets a
ClusterQueue with its share of all that the nodes have to give, in one cohort, so that what
one does not use is lent to the others and comes back when its owner needs it; and a
LocalQueue in its namespace. Of whole GPUs a team gets whole nodes, which is what a job of
whole nodes can have back.

Without --topology, Kueue counts what a pool has in sum. With it, flavors have a Topology,
by which Kueue places pod by pod; but then it admits no job with a replicated job that asks
for nothing, as torchtune's initializers do.

The YAML goes to standard output, remarks go to standard error. The same nodes give the
same YAML: applied a second time it changes nothing, after a change of nodes it brings the
quotas up to date. Where an object of that name is there which this command did not make, it
writes nothing: --overwrite goes on.`

const generateExample = `  # Two teams share all GPUs 60 to 40
  kubectl trainjob pools generate --team vision=60 --team language=40 > pools.yaml
  kubectl apply -f pools.yaml

  # All for the namespace of the current context; see what a new run would change
  kubectl trainjob pools generate | kubectl diff -f -`

func newGenerate(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	g := &generate{flags: flags, streams: streams, options: options{unit: wholeNodes}}
	cmd := &cobra.Command{
		Use: "generate", Short: "Write flavors, a topology, quotas and queues for the GPU pools of this cluster",
		Long: generateLong, Example: generateExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context()) },
	}
	cmd.Flags().StringSliceVar(&g.teams, "team", nil, "a team's NAMESPACE=SHARE, several times; shares are weights, 0 only borrows (default: all for the current namespace)")
	cmd.Flags().StringVar(&g.queue, "queue", "gpus", "the name of the teams' LocalQueues")
	show.OneOf(cmd, &g.unit, "share-unit", "what shares are rounded to: node, or gpu, of which a part of a node does not come back for a job of whole nodes", wholeNodes, singleGPUs)
	cmd.Flags().BoolVar(&g.topology, "topology", false, "have Kueue place pod by pod; it admits no job then with a replicated job that asks for nothing")
	cmd.Flags().BoolVar(&g.overwrite, "overwrite", false, "write objects, too, that are there and that this command did not make")
	return cmd
}

type generate struct {
	flags     cluster.Flags
	streams   genericiooptions.IOStreams
	teams     []string
	overwrite bool
	options
}

// options are what the plan depends on beside nodes and teams.
type options struct {
	queue    string
	unit     string
	topology bool
}

// The units of shares.
const (
	wholeNodes = "node"
	singleGPUs = "gpu"
)

func (g *generate) run(ctx context.Context) error {
	if errs := validation.IsDNS1123Label(g.queue); len(errs) > 0 {
		return fmt.Errorf("--queue %q: %s", g.queue, strings.Join(errs, ", "))
	}
	teams, err := g.parseTeams()
	if err != nil {
		return err
	}
	c, err := g.flags.Client()
	if err != nil {
		return err
	}
	i, err := inventory.Load(ctx, c)
	if err != nil {
		return err
	}
	for _, kind := range []string{inventory.Nodes, inventory.Pods} {
		if !i.Saw(kind) {
			return exit.With(exit.Unseen, fmt.Errorf("%s could not be listed, and pools are read from nodes and from what DaemonSets hold of them: run this as somebody who may list them", kind))
		}
	}
	plan, err := newPlan(i, teams, g.options)
	if err != nil {
		return err
	}
	if !g.overwrite {
		if err := plan.takesNothing(); err != nil {
			return err
		}
	}
	missing, err := missingNamespaces(ctx, c, teams)
	if err != nil {
		return err
	}
	for _, remark := range append(plan.remarks, missing...) {
		fmt.Fprintln(g.streams.ErrOut, "note:", remark)
	}
	return plan.write(g.streams.Out)
}

type team struct {
	namespace string
	share     int64
}

// parseTeams reads --team; the teams come sorted.
func (g *generate) parseTeams() ([]team, error) {
	if len(g.teams) == 0 {
		namespace, err := g.flags.InNamespace(false)
		return []team{{namespace: namespace, share: 1}}, err
	}
	var teams []team
	for _, arg := range g.teams {
		namespace, weight, _ := strings.Cut(arg, "=")
		share, err := strconv.ParseInt(weight, 10, 32)
		if err != nil || share < 0 {
			return nil, fmt.Errorf("--team %s: must be NAMESPACE=SHARE, with a whole number that is not negative, such as vision=60", arg)
		}
		if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
			return nil, fmt.Errorf("--team %s: %q is no namespace: %s", arg, namespace, strings.Join(errs, ", "))
		}
		if slices.ContainsFunc(teams, func(t team) bool { return t.namespace == namespace }) {
			return nil, fmt.Errorf("--team %s: namespace %s is given twice", arg, namespace)
		}
		teams = append(teams, team{namespace, share})
	}
	if sum(teams) == 0 {
		return nil, errors.New("--team: all shares are 0; give one team something")
	}
	slices.SortFunc(teams, func(a, b team) int { return strings.Compare(a.namespace, b.namespace) })
	return teams, nil
}

// missingNamespaces remarks on teams without a namespace. They are not made here: a
// misspelled one should not come to be.
func missingNamespaces(ctx context.Context, c client.Reader, teams []team) ([]string, error) {
	var remarks []string
	for _, t := range teams {
		err := c.Get(ctx, client.ObjectKey{Name: t.namespace}, &corev1.Namespace{})
		switch {
		case apierrors.IsNotFound(err):
			remarks = append(remarks, fmt.Sprintf("namespace %s does not exist, its LocalQueue needs it: kubectl create namespace %s", t.namespace, t.namespace))
		case err != nil && !apierrors.IsForbidden(err):
			return nil, fmt.Errorf("reading namespace %s: %w", t.namespace, err)
		}
	}
	return remarks, nil
}
