// SPDX-License-Identifier: Apache-2.0

// Command trainer21 answers the questions of package oracle with Trainer 2.1.0.
package main

import (
	"log"
	"os"

	"github.com/kubeflow/trainer/v2/pkg/runtime/core"

	"github.com/kueue-trainer/kueue-trainer/test/generations/oracle"
)

func main() {
	if err := oracle.Answers(core.New, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
