// SPDX-License-Identifier: Apache-2.0

// Command trainer23 answers the questions of package oracle with Trainer 2.3.0.
package main

import (
	"context"
	"log"
	"os"

	"github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/generations/oracle"
)

func main() {
	if err := oracle.Answers(func(ctx context.Context, c client.Client, indexer client.FieldIndexer) (map[string]runtime.Runtime, error) {
		return core.New(ctx, c, indexer, nil)
	}, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
