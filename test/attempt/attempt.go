// SPDX-License-Identifier: Apache-2.0

// Package attempt lets programs of many steps that each may fail say the steps alone, as specs do: what
// fails ends all of them.
package attempt

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/onsi/gomega"
)

// Main takes the steps of a program until they end or are interrupted. The label comes before what one failed with.
func Main(label string, take func(context.Context)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := To(func() { take(ctx) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, label+err.Error())
		os.Exit(1)
	}
}

// Lock keeps other processes out of a directory, which it makes, until the file is closed.
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("another process works in %s, wait for it to end: %w", dir, err)
	}
	return lock, nil
}

// failure is what a step panics with.
type failure struct{ error }

// To takes steps and returns what one of them failed with.
func To(take func()) (err error) {
	defer func() {
		recovered := recover()
		if f, ok := recovered.(failure); ok {
			err = f.error
		} else if recovered != nil {
			panic(recovered)
		}
	}()
	take()
	return nil
}

// Succeed ends the attempt with an error, if there is one. What says what was done, as fmt.Sprintf takes it.
func Succeed(err error, what ...any) {
	if err == nil {
		return
	}
	if len(what) > 0 {
		err = fmt.Errorf(what[0].(string)+": %w", append(what[1:], err)...)
	}
	panic(failure{err})
}

// Gomega ends the attempt where something that it was told to expect is not so.
func Gomega() gomega.Gomega {
	return gomega.NewGomega(func(message string, _ ...int) { Fail("%s", message) })
}

// Fail ends the attempt.
func Fail(format string, args ...any) { Succeed(fmt.Errorf(format, args...)) }

// Must returns a value, or ends the attempt with an error.
func Must[T any](value T, err error) T {
	Succeed(err)
	return value
}
