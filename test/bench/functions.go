// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// benchmarks is the package with the Go benchmarks of both integrations.
const benchmarks = "./pkg/integration"

// functions runs the Go benchmarks, with the API server of the first column's cluster for
// what cannot be answered from memory. It has no TrainJobs, so all of it is theirs.
func (b *bench) functions(ctx context.Context) error {
	return b.onCluster(ctx, allColumns[0], jobsNamespace, func(s *site) error {
		root, err := world.Root()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", "test", benchmarks, "-run", "^$", "-bench", ".", "-benchmem")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		if b.results.Functions, err = parseBenchmarks(out); err != nil {
			return err
		}
		for _, f := range b.results.Functions {
			b.say("%-70s %8.1f µs %6.0f allocations", f.Name, f.NsPerOp/1000, f.AllocsPerOp)
		}
		return nil
	})
}

// parseBenchmarks reads lines such as
// "BenchmarkPodSets/in-tree-2  5000  271269 ns/op  96597 B/op  981 allocs/op".
func parseBenchmarks(out []byte) ([]*Function, error) {
	var all []*Function
	scanner := bufio.NewScanner(bytes.NewReader(out))
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 8 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0][:strings.LastIndex(fields[0], "-")], "Benchmark")
		f := &Function{Name: strings.ReplaceAll(name, "_", " ")}
		for i, into := range []*float64{&f.NsPerOp, &f.BytesPerOp, &f.AllocsPerOp} {
			value, err := strconv.ParseFloat(fields[2+2*i], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", scanner.Text(), err)
			}
			*into = value
		}
		all = append(all, f)
	}
	return all, scanner.Err()
}
