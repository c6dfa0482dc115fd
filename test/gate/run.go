// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// run is one run through parts.
type run struct {
	// dir receives logs and reports.
	dir     string
	parts   []part
	atATime int
	// resumes leaves out what an earlier run of the same commit has passed.
	resumes bool
	// engine is whether a container engine answers.
	engine bool
	// commit names the state of the checkout.
	commit func(context.Context) (string, error)
	out    io.Writer
}

// result is what came of a part.
type result struct {
	Part    string  `json:"part"`
	Suite   string  `json:"suite,omitempty"`
	Commit  string  `json:"commit"`
	Seconds float64 `json:"seconds"`
	// Error is how the part ended, empty if it passed.
	Error string `json:"error,omitempty"`
	// Log is the file with all that it printed.
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
func (r *run) run(ctx context.Context) ([]result, error) {
	commit, err := r.commit(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	results, busy := map[string]result{}, map[string]int{}
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
			if !ready(p, results) || len(busy) > 0 && total(busy)+p.load() > r.atATime {
				return false
			}
			busy[p.name] = p.load()
			r.say(p, "starts: %s", p)
			go func() { ended <- r.play(ctx, p, commit) }()
			return true
		})
		if len(busy) == 0 {
			continue // what was waited for is known
		}
		done := <-ended
		delete(busy, done.Part)
		results[done.Part] = done
		r.say(part{name: done.Part}, "%s after %.0f s", done.state(), done.Seconds)
	}
	ordered := make([]result, 0, len(r.parts))
	for _, p := range r.parts {
		ordered = append(ordered, results[p.name])
	}
	return ordered, nil
}

// known returns the result of a part that need not, or cannot, be run.
func (r *run) known(p part, commit string, results map[string]result) (result, bool) {
	if p.engine && !r.engine {
		return result{Part: p.name, Commit: commit, LeftOut: "no container engine answers"}, true
	}
	if r.resumes && !p.builds {
		if earlier, err := r.read(p, commit); err == nil {
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

// ready reports whether all that a part needs has ended.
func ready(p part, results map[string]result) bool {
	return !slices.ContainsFunc(p.needs, func(need string) bool { _, ended := results[need]; return !ended })
}

func total(busy map[string]int) int {
	sum := 0
	for _, load := range busy {
		sum += load
	}
	return sum
}

// play runs a part to its end. All that it started ends with it where we are told to end.
func (r *run) play(ctx context.Context, p part, commit string) result {
	res := result{Part: p.name, Suite: p.suite, Commit: commit, Log: filepath.Join(r.dir, p.name+".log")}
	report := filepath.Join(r.dir, p.name+".json")
	start := time.Now()
	err := func() error {
		log, err := os.Create(res.Log)
		if err != nil {
			return err
		}
		defer log.Close()
		old, _ := filepath.Glob(report + "*") // the pattern is well-formed
		for _, name := range old {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
		cmd := exec.CommandContext(ctx, p.argv()[0], p.argv()[1:]...)
		cmd.Env = append(environment(), append(p.env, "REPORT="+report)...)
		if !p.builds {
			cmd.Env = append(cmd.Env, "BUILT=1")
		}
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return end(-cmd.Process.Pid) }
		cmd.WaitDelay = endsWithin
		return cmd.Run()
	}()
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

// end asks a group of processes to end, and has those killed that do not.
func end(group int) error {
	time.AfterFunc(endsWithin, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	return syscall.Kill(group, syscall.SIGTERM)
}

// environment is ours without what would choose a cluster, or other specs, for every part: they are
// what the table of parts says.
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
	if err != nil {
		return err
	}
	return os.WriteFile(r.resultFile(res.Part), content, 0o644)
}

// read returns the result of an earlier run of the same commit, if the part passed in it.
func (r *run) read(p part, commit string) (result, error) {
	res := result{Earlier: true}
	content, err := os.ReadFile(r.resultFile(p.name))
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(content, &res); err != nil {
		return res, err
	}
	if res.Commit != commit || res.Failed() || strings.HasSuffix(commit, changed) {
		return res, fmt.Errorf("%s of another state", p.name)
	}
	return res, nil
}

// changed marks a checkout with changes that no commit has: nothing of it is taken for tested.
const changed = "+changes"

// commitOf names the state of the checkout.
func commitOf(ctx context.Context) (string, error) {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("not a git checkout: %w", err)
	}
	status, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err != nil {
		return "", err
	}
	commit := string(bytes.TrimSpace(head))
	if len(status) > 0 {
		commit += changed
	}
	return commit, nil
}
