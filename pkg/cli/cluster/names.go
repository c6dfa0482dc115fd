// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
)

// TrainJobName reads the name of a TrainJob as kubectl does: NAME, or TYPE/NAME with any
// name of the type.
func TrainJobName(arg string) (string, error) {
	kind, name, found := strings.Cut(arg, "/")
	if !found {
		return arg, nil
	}
	kind = strings.ToLower(kind)
	resource, group, _ := strings.Cut(kind, ".")
	known := []string{"", trainer.GroupVersion.Group, trainer.GroupVersion.Version + "." + trainer.GroupVersion.Group}
	if (resource != "trainjob" && resource != "trainjobs") || !slices.Contains(known, group) {
		return "", fmt.Errorf("%s is no TrainJob: give NAME or trainjob/NAME", arg)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s names no TrainJob: give NAME or trainjob/NAME", arg)
	}
	return name, nil
}

// OneTrainJob takes the name of one TrainJob from the arguments of a command.
func OneTrainJob(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("give the name of one TrainJob")
	}
	return TrainJobName(args[0])
}

// CompleteContexts offers the contexts of the kubeconfig to the shell.
func (f Flags) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
