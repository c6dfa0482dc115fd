// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"
)

// Terminal is where people type: in a directory with all that the repository's root has, with
// kubectl and the plugin on the PATH.
type Terminal struct {
	Kubeconfig string
	// Log gets what is typed and what is printed.
	Log io.Writer
}

// Command is a program of bin/.
func (t Terminal) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	root, err := Root()
	return t.command(exec.CommandContext(ctx, filepath.Join(root, "bin", name), args...), root, err)
}

// Shell is a block of shell commands as a reader of the docs runs it. It ends at the first command that
// fails.
func (t Terminal) Shell(ctx context.Context, block string) (*exec.Cmd, error) {
	root, err := Root()
	return t.command(exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block), root, err)
}

func (t Terminal) command(cmd *exec.Cmd, root string, err error) (*exec.Cmd, error) {
	// Paths are independent of where go test runs.
	kubeconfig, absErr := filepath.Abs(t.Kubeconfig)
	dir, dirErr := workDir()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"PATH="+filepath.Join(root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd, errors.Join(err, absErr, dirErr)
}

// workDir has a link to everything in the repository's root. What commands write lies there: the
// checkout stays as it is, and specs of other processes write beside it. There is one for each process,
// since the commands of a page read what those before have written.
var workDir = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".tests", "terminals", strconv.Itoa(os.Getpid()))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	for _, entry := range entries {
		err = errors.Join(err, os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(dir, entry.Name())))
	}
	return dir, err
})

// Run runs a command, and returns what it printed and its exit code, which is no error.
func (t Terminal) Run(cmd *exec.Cmd) (stdout, stderr string, code int, err error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return "", "", 0, fmt.Errorf("`make build` and `make local-up` build what is in bin/: %w", err)
	}
	fmt.Fprintf(t.Log, "$ %s\n%s%s", strings.Join(cmd.Args, " "), out.String(), errOut.String())
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode(), nil
}

// ControlledCheck adds an admission check to the world's ClusterQueue, whose controller the test is, and
// returns its name.
func (w *World) ControlledCheck(ctx context.Context) string {
	check := w.MakeCheck(ctx)
	w.ActivateCheck(ctx, check)
	w.DemandCheck(ctx, check.Name)
	return check.Name
}

// MakeCheck makes an admission check whose controller the test is.
func (w *World) MakeCheck(ctx context.Context) *kueue.AdmissionCheck {
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.Name("site")}}
	check.Spec.ControllerName = "example.com/site"
	w.Make(ctx, check)
	return check
}

// ActivateCheck says that the controller of an admission check is there.
func (w *World) ActivateCheck(ctx context.Context, check *kueue.AdmissionCheck) {
	w.ChangeStatus(ctx, check, func() {
		check.Status.Conditions = []metav1.Condition{
			{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.Now()}}
	})
}

// DemandCheck has the world's ClusterQueue admit nothing without an admission check.
func (w *World) DemandCheck(ctx context.Context, check string) {
	w.EditQueue(ctx, w.Name("gpus"), func(cq *kueue.ClusterQueue) {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	})
}

// SetCheck says what an admission check says of a TrainJob's Workload that holds quota.
func (w *World) SetCheck(ctx context.Context, job, check string, state kueue.CheckState, message string, updates ...kueue.PodSetUpdate) {
	w.g.Eventually(ctx, func(g gomega.Gomega) {
		wl := w.Workload(ctx, job)
		g.Expect(wl).NotTo(gomega.BeNil())
		g.Expect(wl.Status.Admission).NotTo(gomega.BeNil())
		g.Expect(wl.Status.AdmissionChecks).To(gomega.ConsistOf(gomega.HaveField("State", kueue.CheckStatePending)))
		answer := &wl.Status.AdmissionChecks[0]
		answer.State, answer.Message, answer.PodSetUpdates = state, message, updates
		g.Expect(w.Status().Update(ctx, wl)).To(gomega.Succeed())
	}).Should(gomega.Succeed())
}

// Names returns the names of the objects of a kind.
func (w *World) Names(ctx context.Context, list client.ObjectList) ([]string, error) {
	var names []string
	err := w.List(ctx, list, client.InNamespace(w.Namespace))
	_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
		names = append(names, obj.(client.Object).GetName())
		return nil
	})
	return names, err
}

// Dump prints what a person would look at first.
func (w *World) Dump(ctx context.Context) {
	for _, list := range []client.ObjectList{
		&trainer.TrainJobList{}, &kueue.WorkloadList{}, &jobsetapi.JobSetList{}, &batchv1.JobList{}, &corev1.PodList{},
	} {
		if err := w.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			fmt.Fprintln(w.log, "dump:", err)
			continue
		}
		_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
			obj.(client.Object).SetManagedFields(nil)
			return nil
		})
		data, err := yaml.Marshal(list)
		fmt.Fprintf(w.log, "---- %s %T\n%s%v\n", w.Cluster.Name, list, data, err)
	}
	w.dumpEvents(ctx)
}

func (w *World) dumpEvents(ctx context.Context) {
	var list eventsv1.EventList
	if err := w.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
		fmt.Fprintln(w.log, "dump:", err)
		return
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, e := range list.Items[max(0, len(list.Items)-40):] {
		fmt.Fprintf(w.log, "%s %s %s %s/%s %s: %s\n",
			w.Cluster.Name, e.CreationTimestamp.Format("15:04:05"), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
	}
}
