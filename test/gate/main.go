// SPDX-License-Identifier: Apache-2.0

// Command gate runs the parts that testing this project is made of, some beside each other,
// and ends with a table of them: seconds, specs that ran, specs that are left out. Without a
// flag it runs what every change has to pass, with -all everything there is.
//
// It runs in the root of a checkout. Each part is a make target; its log and what it said of
// its specs lie in .tests. A run with -all goes on where one of the same commit was stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// reportDir holds the logs and reports of all parts, below the root of the checkout.
const reportDir = ".tests"

func main() {
	attempt.Main("gate: ", func(ctx context.Context) error { return gate(ctx, os.Args[1:]) })
}

func gate(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	all := flags.Bool("all", false, "run everything, in place of what every change has to pass")
	only := flags.String("only", "", "run these parts alone, separated by commas, after what they need")
	atATime := flags.Int("at-a-time", 3, "how many parts run beside each other; those that keep processors busy count twice")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts := gateParts
	if *all {
		parts = allParts
	}
	parts, err := pick(parts, *only)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(filepath.Join(reportDir, map[bool]string{false: "gate", true: "all"}[*all]))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The parts of a second run would have the same clusters.
	lock, err := attempt.Lock(reportDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	file := filepath.Join(dir, "tests.md")
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	r := &run{dir: dir, parts: parts, atATime: *atATime, resumes: *all, engine: hasEngine(), commit: commitOf, out: os.Stdout}
	results, err := r.run(ctx)
	if err != nil {
		return err
	}
	table := summary(results, *all)
	fmt.Print("\n" + table)
	// What is kept tells of everything.
	if *only == "" && ctx.Err() == nil {
		if err := os.WriteFile(file, []byte(table), 0o644); err != nil {
			return err
		}
	}
	return verdict(results)
}

// verdict tells in a few lines what failed, why, and where to read on.
func verdict(results []result) error {
	var failed []string
	for _, r := range results {
		if r.Failed() {
			failed = append(failed, r.why())
		}
	}
	if len(failed) == 0 {
		return nil
	}
	lines := strings.Split(strings.Join(failed, "\n"), "\n")
	if len(lines) > lastLines {
		lines = append(lines[:lastLines-1], fmt.Sprintf("and more, of %d parts that failed: the table has all", len(failed)))
	}
	return errors.New(strings.Join(lines, "\n"))
}

// lastLines is how many lines the verdict has at most.
const lastLines = 10
