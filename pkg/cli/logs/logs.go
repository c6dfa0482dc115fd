// SPDX-License-Identifier: Apache-2.0

// Package logs is the command that prints what the pods of a TrainJob say, in this cluster or in a worker.
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

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
)

const long = `Print the logs of a TrainJob's pods.

Without flags these are all containers of all pods, in order of replicated job and index. Lines
of several carry [REPLICATED-JOB-REPLICA-INDEX] in front: [node-0-1] is the second node of
replicated job node.

The pods of a job that MultiKueue runs in another cluster are read there, where a context of the
kubeconfig is named like that cluster, or --worker-context says which one leads there.

With --follow the logs go on until the TrainJob is over. Pods that come later, because the
TrainJob waits, starts, or is started again, are followed too.`

const example = `  # All pods
  kubectl trainjob logs llm -n team-a

  # The second node, as it goes on
  kubectl trainjob logs llm -n team-a --job node --index 1 -f

  # The last lines of what ran before the containers were started again
  kubectl trainjob logs llm -n team-a --previous --tail 20`

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	workers   *cluster.Workers
	selection selection
	follow    bool
	prefix    bool
	log       corev1.PodLogOptions
	tail      int64
	since     time.Duration
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, workers: cluster.NewWorkers(flags)}
	cmd := &cobra.Command{
		Use: "logs NAME", Short: "Print the logs of a TrainJob's pods",
		Long: long, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cluster.OneTrainJob(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), name, cmd.Flags().Changed("prefix"))
		},
		ValidArgsFunction: cluster.CompleteTrainJobs(flags, 1),
	}
	o.workers.AddTo(cmd)
	f := cmd.Flags()
	f.StringVar(&o.selection.job, "job", "", "the pods of this replicated job")
	f.IntVar(&o.selection.index, "index", -1, "the pods of this index in their Job, from 0")
	f.StringVarP(&o.selection.container, "container", "c", "", "this container, which may be an init container")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the TrainJob is over")
	f.BoolVar(&o.prefix, "prefix", true, "tell in front of each line whose it is; by default where there may be several")
	f.Int64Var(&o.tail, "tail", -1, "this many of the last lines of each log")
	f.DurationVar(&o.since, "since", 0, "what is not older than this, such as 5m")
	f.BoolVarP(&o.log.Previous, "previous", "p", false, "the logs of containers before they were started again")
	f.BoolVar(&o.log.Timestamps, "timestamps", false, "the time of each line")
	return cmd
}

func (o *options) complete() error {
	if o.tail >= 0 {
		o.log.TailLines = &o.tail
	}
	if o.since < 0 {
		return errors.New("--since: give a time that is not negative, such as 5m")
	}
	if seconds := int64((o.since + time.Second - 1) / time.Second); seconds > 0 {
		o.log.SinceSeconds = &seconds
	}
	if o.follow && o.log.Previous {
		return errors.New("--previous and --follow exclude each other: what ran before does not go on")
	}
	return nil
}

func (o *options) run(ctx context.Context, name string, prefixGiven bool) error {
	if err := o.complete(); err != nil {
		return err
	}
	namespace, err := o.flags.InNamespace(false)
	if err != nil {
		return err
	}
	here, err := newPlace(o.flags)
	if err != nil {
		return err
	}
	l := &looker{here: here, workers: o.workers, key: client.ObjectKey{Namespace: namespace, Name: name}, selection: o.selection}
	now, err := l.look(ctx)
	if err != nil {
		return err
	}
	if !prefixGiven {
		o.prefix = o.follow || len(now.targets) > 1
	}
	r := &reader{options: o.log, out: o.streams.Out, errOut: o.streams.ErrOut, prefix: o.prefix}
	switch {
	case o.follow:
		return r.follow(ctx, l.watch(ctx), l.look)
	case len(now.targets) == 0:
		return now.nothing
	}
	return r.readAll(ctx, now.targets)
}

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
		errs = append(errs, fmt.Errorf("%w: --follow waits for them", errNoneStarted))
	}
	return errors.Join(errs...)
}
