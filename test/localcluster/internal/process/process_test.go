// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

func TestParseStat(t *testing.T) {
	tail := " 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 100 5"
	cases := map[string]struct {
		line    string
		want    stat
		wantErr string
	}{
		"a plain command":                        {line: "7 (etcd) S" + tail, want: stat{state: 'S', startTicks: 4711}},
		"a command with spaces and parentheses":  {line: "7 (a) b (c) R" + tail, want: stat{state: 'R', startTicks: 4711}},
		"a zombie":                               {line: "7 (etcd) Z" + tail, want: stat{state: 'Z', startTicks: 4711}},
		"a line without a command is an error":   {line: "7 etcd", wantErr: "no command"},
		"a line that is cut short is an error":   {line: "7 (etcd) S 1 1", wantErr: "too few fields"},
		"a start time must be a positive number": {line: "7 (etcd) S" + strings.Replace(tail, "4711", "-1", 1), wantErr: "start time"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(tc.line))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestStopsOnlyWhatItStarted(t *testing.T) {
	ctx := context.Background()
	p, err := Start(Spec{Argv: []string{"/bin/sleep", "60"}, Log: filepath.Join(t.TempDir(), "sleep.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(ctx) })

	strangers := map[string]Identity{
		"same pid, other start time": {PID: p.PID, StartTicks: p.StartTicks + 1, BootID: p.BootID},
		"same pid, other boot":       {PID: p.PID, StartTicks: p.StartTicks, BootID: "another"},
		"no pid":                     {},
	}
	for name, stranger := range strangers {
		if stranger.Alive() {
			t.Errorf("%s: reported as alive", name)
		}
		if err := stranger.Kill(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !p.Alive() {
		t.Fatal("the process was killed under another identity")
	}
	if killed, err := p.Terminate(ctx, 5*time.Second); err != nil || killed {
		t.Fatalf("killed %v, error %v; want it to end by itself", killed, err)
	}
	if p.Alive() {
		t.Error("still alive after Terminate")
	}
}

func TestKillsWhatIgnoresTerm(t *testing.T) {
	ctx := context.Background()
	log := filepath.Join(t.TempDir(), "sh.log")
	p, err := Start(Spec{Argv: []string{"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	waitForLine(t, log, "ready")
	if killed, err := p.Terminate(ctx, 300*time.Millisecond); err != nil || !killed {
		t.Fatalf("killed %v, error %v; want it killed", killed, err)
	}
	if p.Alive() {
		t.Error("still alive after Terminate's grace period")
	}
}

// waitForLine waits until a log holds a line: then the process is as far as that.
func waitForLine(t *testing.T, log, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		data, err := os.ReadFile(log)
		return strings.Contains(string(data), line+"\n"), err
	})
	if err != nil {
		t.Fatalf("no line %q in %s: %v", line, log, err)
	}
}
