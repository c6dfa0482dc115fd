// SPDX-License-Identifier: Apache-2.0

// Command payload is what pods run where a real kubelet starts them. It trains nothing: it
// waits, takes the memory that it is told to, ends by itself or by SIGTERM, and says so.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	runFor := flag.Duration("run-for", 0, "how long it runs; 0: until SIGTERM")
	exit := flag.Int("exit", 0, "exit code when it ends by itself")
	linger := flag.Duration("linger", 0, "how long it goes on after SIGTERM")
	memory := flag.Int("memory", 0, "MiB that it fills")
	flag.Parse()

	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	say("started")
	held := fill(*memory)
	var done <-chan time.Time
	if *runFor > 0 {
		done = time.After(*runFor)
	}
	select {
	case <-done:
		say("done, with %d MiB held", len(held))
		os.Exit(*exit)
	case <-terminated:
		say("SIGTERM")
	}
	time.Sleep(*linger)
	say("ended")
	// As a shell would report it.
	os.Exit(128 + int(syscall.SIGTERM))
}

// fill holds so many MiB, each page of them written.
func fill(mebibytes int) [][]byte {
	held := make([][]byte, 0, mebibytes)
	for range mebibytes {
		block := make([]byte, 1<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	return held
}

func say(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}
