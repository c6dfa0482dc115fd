// SPDX-License-Identifier: Apache-2.0

// Command bench does the same work under Kueue's in-tree TrainJob integration and under kueue-trainer, in turns, each
// time on a fresh local control plane, and writes down what an admin asks: how soon a TrainJob starts, what that costs
// in requests, CPU and memory, and how long a new leader takes. docs/dev/measuring.md tells how to read it.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/procfs"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the clusters that are measured, below the repository's root.
const localDir = ".local-bench"

func main() {
	ctrl.SetLogger(logr.Discard())
	p := parsePlan()
	attempt.Main("error: ", func(ctx context.Context) { run(ctx, p) })
}

// run measures what the plan says and writes the report; what was measured before an error is written, too.
func run(ctx context.Context, p *plan) {
	if min(p.rounds, p.jobs, p.running, p.waiting) < 1 {
		attempt.Fail("rounds and numbers of TrainJobs are at least 1")
	}
	root := attempt.Must(world.Root())
	commit := attempt.Must(exec.Command("git", "-C", root, "describe", "--always", "--dirty").Output())
	b := &bench{plan: p, dir: filepath.Join(root, localDir), results: p.earlier(root)}
	err := attempt.To(func() { b.measure(ctx, strings.TrimSpace(string(commit))) })
	err = errors.Join(err, attempt.To(func() {
		b.results.Machine.readVersions(root)
		fmt.Println(b.results.report())
		writeReport(filepath.Join(root, p.out), b.results)
	}))
	attempt.Succeed(err)
}

// The parts of the report.
const (
	partLife     = "life"
	partScale    = "scale"
	partForecast = "forecast"
)

type plan struct {
	parts []string
	// rounds is how often each column lives through all; jobs are the TrainJobs of a burst.
	rounds, jobs int
	// running and waiting are the TrainJobs of the large cluster.
	running, waiting int
	// idle is how long a cluster is left alone to see what it does by itself.
	idle time.Duration
	out  string
}

func parsePlan() *plan {
	p := &plan{parts: []string{partLife, partScale, partForecast}}
	// Libraries have flags of their own in the set of all.
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.Func("parts", "what to measure; the report keeps the others as they are (default "+strings.Join(p.parts, ",")+")", func(value string) error {
		p.parts = strings.Split(value, ",")
		return nil
	})
	flags.IntVar(&p.rounds, "rounds", 3, "how often each integration is measured")
	flags.IntVar(&p.jobs, "jobs", 200, "number of TrainJobs in a burst")
	flags.IntVar(&p.running, "running", 2000, "number of TrainJobs that run in a large cluster")
	flags.IntVar(&p.waiting, "waiting", 10000, "number of TrainJobs that wait there")
	flags.DurationVar(&p.idle, "idle", time.Minute, "how long a cluster is left alone to see what it does by itself")
	flags.StringVar(&p.out, "out", "docs", "directory for performance.md and performance/, seen from the repository's root")
	_ = flags.Parse(os.Args[1:]) // it exits
	return p
}

type bench struct {
	*plan
	dir     string
	results *Results
}

// measure measures one part after the other. Each measurement has a cluster of its own, so that none finds what another
// left behind, in memory or in the caches.
func (b *bench) measure(ctx context.Context, commit string) {
	for _, part := range b.parts {
		b.results.begin(part, commit)
		switch part {
		case partLife:
			// In turns: a machine that grows slower meets all columns.
			for round := range b.rounds {
				for _, c := range columns {
					say("%s, round %d", c.title, round+1)
					b.onCluster(ctx, c, (*site).life)
				}
			}
		case partScale:
			b.onCluster(ctx, ours, (*site).scale)
		case partForecast:
			b.forecasts(ctx, 1, 250, 1000, 4000)
			b.forecasts(ctx, 8, 250, 1000, 4000)
		default:
			attempt.Fail("there is no part %s", part)
		}
	}
}

func say(format string, args ...any) {
	fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// onCluster runs measure on a fresh cluster with a queue, and takes that down, also when we are interrupted.
func (b *bench) onCluster(ctx context.Context, c column, measure func(*site, context.Context, *plan)) {
	var progress bytes.Buffer
	cluster, err := world.Start(ctx, b.dir, &progress, c.flags()...)
	if err != nil {
		attempt.Fail("%w\n%s", err, progress.String())
	}
	err = attempt.To(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		measure(newSite(ctx, cluster, c, b.results), ctx, b.plan)
	})
	attempt.Succeed(errors.Join(err, cluster.Stop(context.WithoutCancel(ctx), io.Discard)))
}

// nodes is the number of GPU nodes. The half of them that the flavor is about has room for 3,300 pods.
const nodes = 60

// workers is how many TrainJobs kueue-trainer reconciles at a time by default, and Kueue's integration here.
var workers = func() int {
	var cfg config.Configuration
	config.Default(&cfg)
	return cfg.Controller.GroupKindConcurrency[config.TrainJobKind]
}()

// column is one way to have TrainJobs under Kueue's quotas.
type column struct {
	title, integration string
	inTreeWorkers      int
	// manager is the component that reconciles TrainJobs.
	manager string
}

var (
	inTree = column{title: fmt.Sprintf("in-tree, %d workers", workers), integration: world.InTree, inTreeWorkers: workers, manager: "kueue"}
	ours   = column{title: "kueue-trainer", integration: world.External, manager: "kueue-trainer"}
	// columns are those of the report: the one to compare with comes first.
	columns = []column{inTree, ours}
)

func (c column) flags() []string {
	return []string{"--nodes", strconv.Itoa(nodes), "--integration", c.integration, "--in-tree-workers", strconv.Itoa(c.inTreeWorkers)}
}

// Machine is what the numbers were taken on.
type Machine struct {
	CPU       string            `json:"cpu"`
	CPUs      int               `json:"cpus"`
	MemoryGiB float64           `json:"memoryGiB"`
	Kernel    string            `json:"kernel"`
	Go        string            `json:"go"`
	Versions  map[string]string `json:"versions"`
}

// versioned are the binaries whose versions are told: those of modules carry them.
var versioned = map[string]string{
	"kueue": "Kueue", "trainer-2.3": "Trainer", "jobset-2.3": "JobSet", "kube-apiserver": "Kubernetes", "etcd": "etcd", "kwok": "kwok",
}

// String names machine and versions.
func (m Machine) String() string {
	versions := make([]string, 0, len(m.Versions))
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		versions = append(versions, name+" "+m.Versions[name])
	}
	return fmt.Sprintf("%d x %s, %.0f GiB, Linux %s, %s; %s", m.CPUs, m.CPU, m.MemoryGiB, m.Kernel, m.Go, strings.Join(versions, ", "))
}

func thisMachine() Machine {
	proc := attempt.Must(procfs.NewDefaultFS())
	memory := attempt.Must(proc.Meminfo())
	return Machine{
		CPU: attempt.Must(proc.CPUInfo())[0].ModelName, CPUs: runtime.NumCPU(), MemoryGiB: float64(*memory.MemTotalBytes) / (1 << 30),
		Kernel: strings.TrimSpace(string(attempt.Must(os.ReadFile("/proc/sys/kernel/osrelease")))),
		Go:     runtime.Version(), Versions: map[string]string{},
	}
}

// readVersions looks at the binaries, which the first cluster has built where they were missing.
func (m *Machine) readVersions(root string) {
	for binary, name := range versioned {
		m.Versions[name] = attempt.Must(buildinfo.ReadFile(filepath.Join(root, "bin", binary))).Main.Version
	}
}
