// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/tools/benchmark/parse"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// benchmarks is the package with the Go benchmarks of both integrations.
const benchmarks = "./pkg/integration"

// functions runs the Go benchmarks, with the API server of the first column's cluster for
// what cannot be answered from memory. It has no TrainJobs, so all of it is theirs.
func (b *bench) functions(ctx context.Context) error {
	return b.onCluster(ctx, allColumns[0], jobsNamespace, func(s *site) {
		cmd := exec.CommandContext(ctx, "go", "test", benchmarks, "-run", "^$", "-bench", ".", "-benchmem")
		cmd.Dir, cmd.Env = attempt.Must(world.Root()), append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
		out, err := cmd.CombinedOutput()
		attempt.Succeed(err, "go test says:\n%s", out)
		b.results.Functions = parseBenchmarks(string(out))
		for _, f := range b.results.Functions {
			b.say("%-70s %8.1f µs %6.0f allocations", f.Name, f.NsPerOp/1000, f.AllocsPerOp)
		}
	})
}

// parseBenchmarks leaves the prefix out that all have, and the number of CPUs at the end.
func parseBenchmarks(out string) []*Function {
	var all []*Function
	for line := range strings.Lines(out) {
		b, err := parse.ParseLine(line)
		if err != nil || b.Measured&parse.NsPerOp == 0 {
			continue // what go test says besides
		}
		name := strings.TrimPrefix(b.Name[:strings.LastIndex(b.Name, "-")], "Benchmark")
		all = append(all, &Function{Name: strings.ReplaceAll(name, "_", " "), NsPerOp: b.NsPerOp,
			BytesPerOp: float64(b.AllocedBytesPerOp), AllocsPerOp: float64(b.AllocsPerOp)})
	}
	return all
}
