// SPDX-License-Identifier: Apache-2.0

// Package exit holds the exit codes of the plugin, which scripts rely on.
package exit

import "errors"

// The exit codes of every command; 0 is for everything in order.
const (
	// Failed is for a command that could not do what it was asked: a wrong flag, no such
	// TrainJob, no answer from the cluster.
	Failed = 1
	// Findings is for a command that did its work and found something that is wrong.
	Findings = 2
	// Warnings is for one that found nothing worse than something to look at.
	Warnings = 3
	// Unseen is for one that was not allowed to look at all that its answer goes by, and
	// found nothing wrong with the rest; and for one that changes things and was not allowed to.
	Unseen = 4
)

// Error is an error with an exit code of its own.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// With attaches the exit code to err; nil stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Code is the exit code for what a command returned.
func Code(err error) int {
	if err == nil {
		return 0
	}
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	return Failed
}
