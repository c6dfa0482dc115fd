// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// opener opens the log of a container.
type opener func(ctx context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error)

func openerOf(c kubernetes.Interface) opener {
	return func(ctx context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error) {
		return c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	}
}

// eachLine hands on the lines of a log to its end, the last one as it is.
func eachLine(log io.Reader, take func(line []byte) error) error {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if errTake := take(line); errTake != nil {
				return errTake
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// timed cuts the time off a line that the API server was asked to put it before; lines without
// one are returned as they are.
func timed(line []byte) (time.Time, []byte) {
	before, after, _ := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(bytes.TrimSuffix(before, []byte("\n"))))
	if err != nil {
		return time.Time{}, line
	}
	return at, after
}

// reader reads the logs of targets, and prints lines of many, each as a whole.
type reader struct {
	options     corev1.PodLogOptions
	out, errOut io.Writer
	prefix      bool
	mu          sync.Mutex
}

func (r *reader) print(line []byte, prefix string) error {
	if !bytes.HasSuffix(line, []byte("\n")) {
		// The next line may be of another log.
		line = append(line, '\n')
	}
	if r.prefix {
		line = fmt.Appendf(nil, "[%s] %s", prefix, line)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.out.Write(line)
	return err
}

// read hands on the lines of one container's log.
func (r *reader) read(ctx context.Context, t *target, options corev1.PodLogOptions, take func(line []byte) error) error {
	options.Container = t.container
	log, err := t.open(ctx, t.pod, &options)
	if err != nil {
		return fmt.Errorf("%s (pod %s): %w", t.prefix, t.pod.Name, err)
	}
	defer func() { _ = log.Close() }()
	if err := eachLine(log, take); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s (pod %s): %w", t.prefix, t.pod.Name, err)
	}
	return nil
}

// readAll prints one log after the other. A container that has not begun has none, and one that was
// not started again none of before.
func (r *reader) readAll(ctx context.Context, targets []target) error {
	var errs []error
	read := 0
	for i := range targets {
		t := &targets[i]
		if !t.started {
			fmt.Fprintf(r.errOut, "note: %s (pod %s) has not started: %s\n", t.prefix, t.pod.Name, t.waits)
			continue
		}
		if r.options.Previous && t.restarts == 0 {
			fmt.Fprintf(r.errOut, "note: %s (pod %s) was not started again\n", t.prefix, t.pod.Name)
			continue
		}
		if err := r.read(ctx, t, r.options, func(line []byte) error { return r.print(line, t.prefix) }); err != nil {
			errs = append(errs, err)
			continue
		}
		read++
	}
	switch {
	case read > 0 || len(errs) > 0:
	case r.options.Previous:
		errs = append(errs, errors.New("no container was started again: without --previous there is what they say now"))
	default:
		errs = append(errs, errors.New("no container has started: --follow waits for them"))
	}
	return errors.Join(errs...)
}
