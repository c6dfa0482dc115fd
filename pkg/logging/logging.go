// SPDX-License-Identifier: Apache-2.0

// Package logging makes the loggers of the manager. docs/logging.md says what they write.
package logging

import (
	"errors"
	"log/slog"
	"regexp"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New returns a logger that leaves out of errors and texts what a field was refused for: the
// API server quotes values, and whole pod templates with their env.
func New(options ...zap.Opts) logr.Logger {
	log := zap.New(options...)
	return log.WithSink(discreet{LogSink: log.GetSink()})
}

// SetDefault has whatever writes a log of its own write by this logger: controller-runtime, client-go,
// and packages that know Go's loggers alone, such as HTTP servers that tell of failed handshakes.
func SetDefault(log logr.Logger) {
	ctrllog.SetLogger(log)
	klog.SetLoggerWithOptions(log, klog.ContextualLogger(true))
	// That of package log, too.
	slog.SetDefault(slog.New(logr.ToSlogHandler(log)))
}

// ForController returns how the named controller makes the logger of a request, with the object
// that it is about under key.
func ForController(base logr.Logger, name, key string) func(*reconcile.Request) logr.Logger {
	base = base.WithValues("controller", name)
	return func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return base
		}
		return base.WithValues(key, klog.KRef(req.Namespace, req.Name))
	}
}

const leftOut = "(left out)"

var (
	// composite values are printed as Go or as JSON, with anything in them: nothing after them is
	// told apart from them, but for the commonest reason.
	composite = regexp.MustCompile(`(?s)\b((?:Invalid|Unsupported|Duplicate) value): [&*\w.]*[{\[].*?(: field is immutable)?$`)
	quoted    = regexp.MustCompile(`\b((?:Invalid|Unsupported|Duplicate) value): "(?:[^"\\]|\\.)*\\?("|$)`)
)

// Discreet returns text without the values that it quotes of fields.
func Discreet(text string) string {
	text = quoted.ReplaceAllString(text, "$1: "+leftOut)
	return composite.ReplaceAllString(text, "$1: "+leftOut+"$2")
}

// bodies is the level from which on client-go logs what it sends and is sent, Secrets among it. It
// asks whether a logger is enabled.
const bodies = 8

// discreet passes on what it is told, texts made discreet, and nothing from level bodies on. It passes its values on with
// the lines that are written: most loggers are made for lines that are not.
type discreet struct {
	logr.LogSink
	values []any
}

func (s discreet) Enabled(level int) bool { return level < bodies && s.LogSink.Enabled(level) }

func (s discreet) Info(level int, msg string, keysAndValues ...any) {
	s.LogSink.Info(level, msg, s.all(keysAndValues)...)
}

func (s discreet) Error(err error, msg string, keysAndValues ...any) {
	if err != nil {
		err = errors.New(Discreet(err.Error()))
	}
	s.LogSink.Error(err, msg, s.all(keysAndValues)...)
}

func (s discreet) WithValues(keysAndValues ...any) logr.LogSink {
	return discreet{s.LogSink, slices.Concat(s.values, keysAndValues)}
}

func (s discreet) WithName(name string) logr.LogSink {
	return discreet{s.LogSink.WithName(name), s.values}
}

// all returns the logger's keys and values and those of a line, of which the texts are discreet.
func (s discreet) all(keysAndValues []any) []any {
	out := slices.Concat(s.values, keysAndValues)
	for i, value := range out {
		switch v := value.(type) {
		case string:
			out[i] = Discreet(v)
		case error:
			out[i] = Discreet(v.Error())
		}
	}
	return out
}
