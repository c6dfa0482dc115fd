// SPDX-License-Identifier: Apache-2.0

// Package attempt lets many steps that each may fail be said alone: what fails ends all of them. It is what test/attempt
// is to the programs of the main module, whose versions this module is not to have.
package attempt

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

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

// atATime is as many requests as an API server on two cores answers without queueing.
const atATime = 16

// ForEach takes a step for each of a list, at the same time. The first that fails interrupts the others.
func ForEach[T any](ctx context.Context, list []T, take func(context.Context, T)) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for _, item := range list {
		group.Go(func() error { return To(func() { take(ctx, item) }) })
	}
	Succeed(group.Wait())
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

// Fail ends the attempt.
func Fail(format string, args ...any) { Succeed(fmt.Errorf(format, args...)) }

// Must returns a value, or ends the attempt with an error.
func Must[T any](value T, err error) T {
	Succeed(err)
	return value
}
