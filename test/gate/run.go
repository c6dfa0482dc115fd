// SPDX-License-Identifier: Apache-2.0

// Command gate runs the parts that testing this project is made of, some beside each other,
// and ends with a table of them: seconds, specs that ran, specs that are left out. Without a
// flag it runs what every change has to pass, with -all everything there is.
//
// It runs in the root of a checkout. Each part is a make target; its log and what it said of
// its specs lie in .tests. A run with -all goes on where one of the same commit was stopped.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// reportDir holds the logs and reports of all parts, below the root of the checkout.
const reportDir = ".tests"

func main() {
	attempt.Main("gate: ", func(ctx context.Context) { attempt.Succeed(verdict(gate(ctx))) })
}

// gate runs the parts that the flags ask for, and prints their table.
func gate(ctx context.Context) []result {
	all := flag.Bool("all", false, "run everything, in place of what every change has to pass")
	only := flag.String("only", "", "run these parts alone, separated by commas, after what they need")
	atATime := flag.Int("at-a-time", 3, "how many parts run beside each other; those that keep processors busy count twice")
	engine := flag.Bool("engine", false, "fail where no container engine answers, in place of leaving out what needs one")
	flag.Parse()
	parts, name := gateParts, "gate"
	if *all {
		parts, name = allParts, "all"
	}
	parts = attempt.Must(pick(parts, *only))
	dir := attempt.Must(filepath.Abs(filepath.Join(reportDir, name)))
	// The parts of a second run would have the same clusters.
	lock := attempt.Must(attempt.Lock(reportDir))
	defer lock.Close()
	file := filepath.Join(dir, "tests.md")
	attempt.Succeed(os.RemoveAll(file))
	r := &run{dir: dir, parts: parts, atATime: *atATime, resumes: *all, commit: commitOf, out: os.Stdout}
	answer, err := exec.Command("docker", "info").CombinedOutput()
	if r.engine = err == nil; *engine && !r.engine {
		attempt.Fail("no container engine answers: %s", answer)
	}
	results := r.run(ctx)
	if *all && *only == "" {
		results = append(results, everywhere(results)...)
	}
	table := summary(results, *all)
	fmt.Print("\n" + table)
	// What is kept tells of everything.
	if *only == "" && ctx.Err() == nil {
		attempt.Succeed(os.WriteFile(file, []byte(table), 0o644))
	}
	return results
}

type run struct {
	dir     string
	parts   []part
	atATime int
	// resumes leaves out what an earlier run of the same commit has passed.
	resumes bool
	engine  bool
	// commit names the state of the checkout.
	commit func(context.Context) (string, error)
	out    io.Writer
}

type result struct {
	Part    string  `json:"part"`
	Suite   string  `json:"suite,omitempty"`
	Commit  string  `json:"commit"`
	Seconds float64 `json:"seconds"`
	// Error is how the part ended, empty if it passed.
	Error string `json:"error,omitempty"`
	Log   string `json:"log"`
	Specs specs  `json:"specs"`
	// Earlier is set where an earlier run of the same commit has passed it.
	Earlier bool `json:"-"`
	// LeftOut says why it was not run on this machine.
	LeftOut string `json:"leftOut,omitempty"`
}

// Failed reports whether the part did not pass.
func (r result) Failed() bool { return r.Error != "" }

// run starts each part when what it needs has ended and there is room for it, in the order of
// the list. What needs a part that failed is not run. The results are in the order of the list.
func (r *run) run(ctx context.Context) (ordered []result) {
	commit := attempt.Must(r.commit(ctx))
	attempt.Succeed(os.MkdirAll(r.dir, 0o755))
	results, busy, load := map[string]result{}, map[string]int{}, 0
	ended := make(chan result)
	for waiting := slices.Clone(r.parts); len(waiting) > 0 || len(busy) > 0; {
		waiting = slices.DeleteFunc(waiting, func(p part) bool {
			if ctx.Err() != nil {
				results[p.name] = result{Part: p.name, Commit: commit, Error: "was not started"}
				return true
			}
			if res, known := r.known(p, commit, results); known {
				results[p.name] = res
				r.say(p, "%s", res.state())
				return true
			}
			if r.waits(p, results) || len(busy) > 0 && load+p.load() > r.atATime {
				return false
			}
			busy[p.name], load = p.load(), load+p.load()
			r.say(p, "starts: %s", p)
			go func() { ended <- r.play(ctx, p, commit) }()
			return true
		})
		if len(busy) == 0 {
			continue // what was waited for is known
		}
		done := <-ended
		load -= busy[done.Part]
		delete(busy, done.Part)
		results[done.Part] = done
		r.say(part{name: done.Part}, "%s after %.0f s", done.state(), done.Seconds)
	}
	for _, p := range r.parts {
		ordered = append(ordered, results[p.name])
	}
	return ordered
}

// waits reports whether a part is to start later than one that has not ended.
func (r *run) waits(p part, results map[string]result) bool {
	return slices.ContainsFunc(r.parts, func(other part) bool {
		_, ended := results[other.name]
		return !ended && (slices.Contains(p.needs, other.name) || p.after == other.name)
	})
}

// everywhere returns a failure where specs ran in no part, though none was left out.
func everywhere(results []result) []result {
	var skipped []failure
	for _, name := range nowhere(results, suiteE2E) {
		skipped = append(skipped, failure{name, "it ran in no part"})
	}
	if len(skipped) == 0 || slices.ContainsFunc(results, func(r result) bool { return r.LeftOut != "" || r.Failed() }) {
		return nil
	}
	return []result{{Part: "everywhere", Error: fmt.Sprintf("%d specs ran in no part", len(skipped)), Specs: specs{Failures: skipped}}}
}

// known returns the result of a part that need not, or cannot, be run.
func (r *run) known(p part, commit string, results map[string]result) (result, bool) {
	if p.engine && !r.engine {
		return result{Part: p.name, Commit: commit, LeftOut: "no container engine answers"}, true
	}
	if r.resumes && !p.builds {
		if earlier, passed := r.read(p, commit); passed {
			return earlier, true
		}
	}
	for _, need := range p.needs {
		if results[need].Failed() {
			return result{Part: p.name, Commit: commit, Error: "needs " + need + ", which failed"}, true
		}
	}
	return result{}, false
}

func (r *run) say(p part, format string, args ...any) {
	fmt.Fprintf(r.out, "%s %-12s %s\n", time.Now().Format(time.TimeOnly), p.name, fmt.Sprintf(format, args...))
}

// state tells in a word or two what came of the part.
func (r result) state() string {
	switch {
	case r.LeftOut != "":
		return "left out: " + r.LeftOut
	case r.Failed():
		return r.Error
	case r.Earlier:
		return "passed in an earlier run of this commit"
	}
	return "passed"
}

// play runs a part to its end. All that it started ends with it where we are told to end.
func (r *run) play(ctx context.Context, p part, commit string) result {
	res := result{Part: p.name, Suite: p.suite, Commit: commit, Log: filepath.Join(r.dir, p.name+".log")}
	report := filepath.Join(r.dir, p.name+".json")
	start := time.Now()
	err := attempt.To(func() {
		log := attempt.Must(os.Create(res.Log))
		defer log.Close()
		for _, old := range attempt.Must(filepath.Glob(report + "*")) {
			attempt.Succeed(os.Remove(old))
		}
		cmd := exec.CommandContext(ctx, p.argv()[0], p.argv()[1:]...)
		cmd.Env = append(environment(), append(p.env, "REPORT="+report)...)
		if !p.builds {
			cmd.Env = append(cmd.Env, "BUILT=1")
		}
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		// What does not end when it is asked to is killed.
		cmd.Cancel = func() error {
			time.AfterFunc(endsWithin, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		}
		cmd.WaitDelay = endsWithin
		attempt.Succeed(cmd.Run())
	})
	if now, errNow := r.commit(ctx); err == nil && (errNow != nil || now != commit) {
		err = fmt.Errorf("the checkout has changed meanwhile: it is %s now", now)
	}
	res.Seconds = time.Since(start).Seconds()
	res.Specs = readSpecs(report, res.Log)
	if err == nil && p.specs && res.Specs.Run == 0 {
		err = errors.New("ran no spec")
	}
	if err != nil {
		res.Error = err.Error()
	}
	if err := r.write(res); err != nil && res.Error == "" {
		res.Error = err.Error()
	}
	return res
}

// endsWithin is how long the targets of a part may take down their control planes.
const endsWithin = time.Minute

// environment is ours without what would choose a cluster or specs for every part: the table of parts says those.
func environment() []string {
	choices := []string{"KUBECONFIG", "LOCAL_DIR", "FLEET_DIR", "FLEET_MANAGER", "FLEET_WORKERS", "NODES", "INTEGRATION",
		"TRAINER", "KUBERNETES", "REPORT", "BUILT", "MAKEFLAGS", "MFLAGS"}
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(choices, name) || strings.HasSuffix(name, "_FLAGS")
	})
}

func (r *run) resultFile(name string) string { return filepath.Join(r.dir, name+".result.json") }

func (r *run) write(res result) error {
	content, err := json.MarshalIndent(res, "", "  ")
	return errors.Join(err, os.WriteFile(r.resultFile(res.Part), content, 0o644))
}

// read returns the result of an earlier run of the same commit, and whether the part passed in it.
func (r *run) read(p part, commit string) (result, bool) {
	res := result{Earlier: true}
	content, err := os.ReadFile(r.resultFile(p.name))
	passed := err == nil && json.Unmarshal(content, &res) == nil &&
		res.Commit == commit && !res.Failed() && !strings.HasSuffix(commit, changed)
	return res, passed
}

// changed marks a checkout with changes that no commit has: nothing of it is taken for tested.
const changed = "+changes"

func commitOf(ctx context.Context) (string, error) {
	head, errHead := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	status, errStatus := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err := errors.Join(errHead, errStatus); err != nil {
		return "", fmt.Errorf("asking git for the commit: %w", err)
	}
	commit := string(bytes.TrimSpace(head))
	if len(status) > 0 {
		commit += changed
	}
	return commit, nil
}
