// SPDX-License-Identifier: Apache-2.0

// Command kubectl-trainjob is a kubectl plugin for TrainJobs under Kueue; it works as
// "kubectl trainjob" and alone.
package main

import (
	"fmt"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := cli.NewCommand(streams).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		said := cluster.Sentence(err)
		code := max(exit.Code(err), exit.Code(said))
		severity := "error:"
		if code == exit.Warnings {
			severity = "warning:"
		}
		fmt.Fprintln(show.OnScreen(os.Stderr), severity, said)
		os.Exit(code)
	}
}
