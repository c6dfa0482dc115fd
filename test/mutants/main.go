// SPDX-License-Identifier: Apache-2.0

// Command mutants puts one bug after another into the core and runs the test that has to
// notice. The checkout stays as it is: the go command reads the changed file in its place.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	withSpecs = flag.Bool("e2e", false, "run the e2e specs too, on the control plane of LOCAL_DIR and KUBECONFIG")
	only      = flag.String("run", "", "regular expression of the mutants to try, by what they break or their file; the document is left alone")
	atATime   = flag.Int("parallel", 2, "unit tests at a time")
)

const document = "docs/dev/invariants.md"

func main() {
	flag.Parse()
	attempt.Main("", run)
}

func run(ctx context.Context) error {
	root, err := world.Root()
	if err != nil {
		return err
	}
	chosen, err := choose(mutants, *only)
	if err != nil {
		return err
	}
	fates := tryUnits(ctx, root, chosen)
	if *withSpecs {
		if err := trySpecs(ctx, root, fates); err != nil {
			return err
		}
	}
	for _, f := range fates {
		fmt.Printf("%s (%s)\n  %s\n", f.Breaks, f.File, f.outcome())
	}
	if *only == "" {
		if err := pages.Fill(filepath.Join(root, document), beginMark, endMark, section(fates)); err != nil {
			return err
		}
	}
	return judge(fates)
}

func choose(all []mutant, expression string) ([]mutant, error) {
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		return !pattern.MatchString(m.Breaks) && !pattern.MatchString(m.File)
	}), nil
}

// tryUnits runs the unit tests, some at a time.
func tryUnits(ctx context.Context, root string, chosen []mutant) []fate {
	fates := make([]fate, len(chosen))
	var group errgroup.Group
	group.SetLimit(*atATime)
	for i, m := range chosen {
		fates[i] = fate{mutant: m, notRun: m.Test == ""}
		if m.Test == "" {
			continue
		}
		group.Go(func() error {
			killedBy, err := runUnit(ctx, root, m)
			fates[i].killedBy, fates[i].err = short(killedBy), err
			fmt.Fprintf(os.Stderr, "%d of %d: %s\n", i+1, len(chosen), fates[i].outcome())
			return nil
		})
	}
	_ = group.Wait() // What became of each is in its fate.
	return fates
}

// trySpecs runs the specs, one after another.
func trySpecs(ctx context.Context, root string, fates []fate) (err error) {
	l, err := newLab(ctx, root)
	if err != nil {
		return err
	}
	defer func() {
		if closed := l.close(context.WithoutCancel(ctx)); err == nil {
			err = closed
		}
	}()
	for i := range fates {
		f := &fates[i]
		if f.Spec == "" || f.err != nil {
			continue
		}
		f.notRun = false
		var failed []string
		if failed, f.err = l.run(ctx, f.mutant); len(failed) > 0 {
			f.killedBy, f.bySpec = append(f.killedBy, "spec "+f.Spec), true
		}
		fmt.Fprintf(os.Stderr, "%d of %d: %s\n", i+1, len(fates), f.outcome())
	}
	return nil
}

// judge is an error where a bug was not noticed, or could not be tried.
func judge(fates []fate) error {
	ends := map[end]int{}
	for _, f := range fates {
		ends[f.end()]++
	}
	fmt.Printf("\n%d mutants: %d survived, %d do not apply, %d need -e2e\n", len(fates), ends[survived], ends[broken], ends[notRun])
	if ends[survived]+ends[broken] > 0 {
		return fmt.Errorf("%d mutants survived, %d do not apply", ends[survived], ends[broken])
	}
	return nil
}
