// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

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

// printer prints lines of many logs, each as a whole.
type printer struct {
	mu     sync.Mutex
	out    io.Writer
	prefix bool
}

// copy prints a log to its end.
func (p *printer) copy(log io.Reader, prefix string) error {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if errWrite := p.line(line, prefix); errWrite != nil {
				return errWrite
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

func (p *printer) line(line []byte, prefix string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line[len(line)-1] != '\n' {
		// The next line may be of another log.
		line = append(line, '\n')
	}
	if !p.prefix {
		_, err := p.out.Write(line)
		return err
	}
	_, err := fmt.Fprintf(p.out, "[%s] %s", prefix, line)
	return err
}

// reader reads logs of targets.
type reader struct {
	open    opener
	printer *printer
	errOut  io.Writer
	options corev1.PodLogOptions
}

// read prints the log of one container.
func (r *reader) read(ctx context.Context, t *target, options corev1.PodLogOptions) error {
	options.Container = t.container
	log, err := r.open(ctx, t.pod, &options)
	if err != nil {
		return fmt.Errorf("%s (pod %s): %w", t.prefix, t.pod.Name, err)
	}
	defer func() { _ = log.Close() }()
	if err := r.printer.copy(log, t.prefix); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s (pod %s): %w", t.prefix, t.pod.Name, err)
	}
	return nil
}

// readAll prints one log after the other. A container that has not begun has none.
func (r *reader) readAll(ctx context.Context, targets []target) error {
	var errs []error
	read := 0
	for i := range targets {
		t := &targets[i]
		if !t.started {
			fmt.Fprintf(r.errOut, "note: %s (pod %s) has not started: %s\n", t.prefix, t.pod.Name, t.waits)
			continue
		}
		if err := r.read(ctx, t, r.options); err != nil {
			errs = append(errs, err)
			continue
		}
		read++
	}
	if read == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no container has started: --follow waits for them"))
	}
	return errors.Join(errs...)
}
