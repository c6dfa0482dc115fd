// SPDX-License-Identifier: Apache-2.0

// Package shares is the command that shows who has, borrows and lends what, and who is looked at next.
package shares

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

const long = `Show who has, borrows and lends what, and in which order Kueue looks at those who wait.

There is a line for each quota of a ClusterQueue, with its weight in fair sharing and its share as
Kueue computes it: what it borrows of what its cohort can lend, in thousandths, divided by the
weight. LocalQueues with admission fair sharing come with what they have consumed. Then come those
who wait, in the order in which Kueue looks at them, with what puts each in its place.

Who may not see ClusterQueues sees what the LocalQueues of the namespace use, and who waits there,
without places. A note tells where Kueue's configuration, which says whether it shares fairly, is
not seen.

Exit codes: 0 all queues and jobs were seen, 1 the cluster does not answer, 4 you may not see all of it.`

const example = `  # Who has what, and who is next?
  kubectl trainjob shares

  # For scripts
  kubectl trainjob shares -o json`

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams
	output  string
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use: "shares", Short: "Show what queues have, borrow and lend, and who is looked at next",
		Long: long, Example: example, Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	show.OutputFlag(cmd, &o.output, show.JSON, show.YAML)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	c, namespace, err := o.flags.ClientIn(false)
	if err != nil {
		return err
	}
	at, err := read(ctx, c, namespace)
	if err != nil {
		return err
	}
	view, err := newView(ctx, at)
	if err != nil {
		return err
	}
	switch {
	case show.ForMachines(o.output):
		err = show.Encode(o.streams.Out, o.output, view)
	case len(view.Queues)+len(view.Used)+len(view.Waiting) == 0:
		where := ""
		if len(at.UnseenQueues()) > 0 {
			where = " in namespace " + namespace
		}
		fmt.Fprintf(o.streams.ErrOut, "No queues found%s.\n", where)
	default:
		err = view.print(o.streams.Out, show.Painter(o.streams.Out))
	}
	if err != nil || len(at.UnseenQueues()) == 0 {
		return err
	}
	return exit.With(exit.Unseen, fmt.Errorf("you may not list %s in the whole cluster: what is shown is of namespace %s; ask an admin for ClusterRole kueue-trainer-queues-viewer", strings.Join(at.UnseenQueues(), ", "), namespace))
}

// read reads the cluster, or of a namespace what its users may see.
func read(ctx context.Context, c client.Client, namespace string) (*outlook.Outlook, error) {
	i, err := inventory.LoadForQuota(ctx, c)
	if err != nil {
		return nil, err
	}
	at := &outlook.Outlook{Inventory: i, Now: time.Now(), NoArrivals: true}
	if at.Kueue, err = cluster.KueueConfiguration(ctx, c); apierrors.IsForbidden(err) {
		i.Unseen = append(i.Unseen, "configmaps")
	} else if err != nil {
		return nil, err
	}
	if i.Saw(inventory.LocalQueues) && i.Saw(inventory.Workloads) {
		return at, nil
	}
	// Where a Workload waits, its LocalQueue tells: one without the other says nothing.
	if i.LocalQueues, err = inventory.List[kueue.LocalQueue](ctx, c, client.InNamespace(namespace)); err != nil {
		return nil, cluster.Unread("list", "LocalQueues", namespace, err)
	}
	if i.Workloads, err = inventory.List[kueue.Workload](ctx, c, client.InNamespace(namespace)); err != nil {
		return nil, cluster.Unread("list", "Workloads", namespace, err)
	}
	return at, nil
}
