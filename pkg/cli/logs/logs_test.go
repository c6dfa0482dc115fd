// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// pod is one whose containers run.
func pod(job string, replica, index int, containers ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("llm-%s-%d-%d-xyz", job, replica, index), Labels: map[string]string{
			jobsetapi.ReplicatedJobNameKey: job, jobsetapi.JobIndexKey: fmt.Sprint(replica), batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index),
		},
	}}
	p.UID = types.UID(p.Name)
	p.Status.Phase = corev1.PodRunning
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	return p
}

func TestTargets(t *testing.T) {
	pods := []corev1.Pod{pod("node", 0, 10, "node"), pod("node", 0, 2, "node"), pod("node", 1, 0, "node"), pod("init", 0, 0, "dataset", "sidecar")}
	pods[3].Spec.InitContainers = []corev1.Container{{Name: "wait"}}
	all := selection{index: -1}
	prefixes := func(of selection) []string {
		return expect.Each(of.targets(pods, nil), func(of target) string { return of.prefix })
	}
	expect.Answers(t, prefixes, map[string]expect.Row[selection, []string]{
		"all of them, by job, replica and index": {In: all, Want: []string{"init-0-0 dataset", "init-0-0 sidecar", "node-0-2", "node-0-10", "node-1-0"}},
		"a replicated job":                       {In: selection{job: "node", index: -1}, Want: []string{"node-0-2", "node-0-10", "node-1-0"}},
		"an index":                               {In: selection{job: "node", index: 2}, Want: []string{"node-0-2"}},
		"a container":                            {In: selection{index: -1, container: "sidecar"}, Want: []string{"init-0-0"}},
		"an init container":                      {In: selection{index: -1, container: "wait"}, Want: []string{"init-0-0"}},
		"none":                                   {In: selection{job: "launcher", index: -1}},
	})
}

func TestStates(t *testing.T) {
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	type row struct {
		status  []corev1.ContainerStatus
		started bool
		waits   string
	}
	expect.Rows(t, map[string]row{
		"one that runs":            {status: []corev1.ContainerStatus{{Name: "node", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, started: true, waits: "Running"},
		"one that has ended":       {status: []corev1.ContainerStatus{{Name: "node", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}, started: true, waits: "Running"},
		"one that waits":           {status: []corev1.ContainerStatus{{Name: "node", State: waiting}}, waits: "ImagePullBackOff"},
		"one that waits again":     {status: []corev1.ContainerStatus{{Name: "node", State: waiting, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}, started: true, waits: "ImagePullBackOff"},
		"one nobody has heard of":  {waits: "Running"},
		"another one of its names": {status: []corev1.ContainerStatus{{Name: "other", State: waiting}}, waits: "Running"},
	}, func(t *testing.T, tc row) {
		p := pod("node", 0, 0, "node")
		p.Status.ContainerStatuses = tc.status
		got := selection{index: -1}.targets([]corev1.Pod{p}, nil)[0]
		expect.Same(t, "Unexpected start and wait", []any{tc.started, tc.waits}, []any{got.started, got.waits})
	})
}

// kubelets have logs by pod and container, and note what they are asked for.
type kubelets struct {
	mu    sync.Mutex
	logs  map[string]string
	asked []corev1.PodLogOptions
	// broken is how the first stream ends.
	broken error
}

func (c *kubelets) write(log, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[log] += text
}

func (c *kubelets) open(_ context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, *options)
	log, there := c.logs[pod.Name+"/"+options.Container]
	if !there {
		return nil, errors.New("no such log")
	}
	if err := c.broken; err != nil {
		c.broken = nil
		return io.NopCloser(io.MultiReader(strings.NewReader(log), iotest.ErrReader(err))), nil
	}
	return io.NopCloser(strings.NewReader(log)), nil
}

func (c *kubelets) reader(prefix bool, options corev1.PodLogOptions) (r *reader, out, errOut *strings.Builder) {
	out, errOut = &strings.Builder{}, &strings.Builder{}
	return &reader{options: options, out: out, errOut: errOut, prefix: prefix}, out, errOut
}

func TestReadAll(t *testing.T) {
	first, second := pod("node", 0, 0, "node"), pod("node", 0, 1, "node")
	first.Status.ContainerStatuses[0].RestartCount, second.Status.ContainerStatuses[0].RestartCount = 1, 1
	late, steady := pod("node", 0, 2, "node"), pod("node", 0, 3, "node")
	late.Status.ContainerStatuses = nil
	c := &kubelets{logs: map[string]string{first.Name + "/node": "a\nb", second.Name + "/node": "c\n"}}
	r, out, errOut := c.reader(true, corev1.PodLogOptions{TailLines: ptr.To[int64](7), Previous: true})
	expect.NoError(t, r.readAll(t.Context(), selection{index: -1}.targets([]corev1.Pod{steady, late, second, first}, c.open)))
	expect.Same(t, "Unexpected lines", "[node-0-0] a\n[node-0-0] b\n[node-0-1] c\n", out.String())
	expect.Same(t, "Unexpected notes", "note: node-0-2 (pod llm-node-0-2-xyz) has not started: Running\nnote: node-0-3 (pod llm-node-0-3-xyz) was not started again\n", errOut.String())
	expect.Same(t, "Unexpected options", corev1.PodLogOptions{Container: "node", TailLines: ptr.To[int64](7), Previous: true}, c.asked[0])

	delete(c.logs, second.Name+"/node")
	expect.Says(t, r.readAll(t.Context(), selection{index: -1}.targets([]corev1.Pod{first, second}, c.open)), "node-0-1 (pod llm-node-0-1-xyz): no such log")
	expect.Says(t, r.readAll(t.Context(), selection{index: -1}.targets([]corev1.Pod{steady}, c.open)), "without --previous")
	r.options.Previous = false
	expect.Says(t, r.readAll(t.Context(), selection{index: -1}.targets([]corev1.Pod{late}, c.open)), "--follow")
}

// line is one with its time, as the API server gives it.
func line(second int, text string) string {
	return time.Date(2030, 1, 1, 12, 0, second, 1000, time.UTC).Format(time.RFC3339Nano) + " " + text + "\n"
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, later := pod("node", 0, 0, "node"), pod("node", 0, 1, "node")
		again := *first.DeepCopy()
		again.Status.ContainerStatuses[0].RestartCount = 1
		c := &kubelets{logs: map[string]string{first.Name + "/node": line(0, "a"), later.Name + "/node": line(0, "b")}}
		r, out, errOut := c.reader(true, corev1.PodLogOptions{TailLines: ptr.To[int64](1)})
		changes := follow.Watch(t.Context(), 0)
		looks := [][]corev1.Pod{nil, {first}, {first, later}, {again, later}}
		n := 0
		look := func(context.Context) (sight, error) {
			s := sight{targets: selection{index: -1}.targets(looks[min(n, len(looks)-1)], c.open), over: n == len(looks)}
			n++
			return s, nil
		}
		ended := make(chan error)
		go func() { ended <- r.follow(t.Context(), changes, look) }()
		for range looks {
			expect.Pass(time.Millisecond)
			if n == len(looks)-1 {
				c.write(first.Name+"/node", line(1, "of the second run"))
			}
			changes.Note()
		}
		expect.NoError(t, <-ended)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		slices.Sort(lines)
		expect.Same(t, "Unexpected lines", []string{"[node-0-0] a", "[node-0-0] of the second run", "[node-0-1] b"}, lines)
		expect.Same(t, "Unexpected notes", "", errOut.String())
		for _, options := range c.asked {
			expect.That(t, options.Follow && options.TailLines == nil, "Unexpected options %+v: what comes later is printed whole", options)
		}
	})
}

// TestFollowBroken is about a connection that breaks in the midst of a line.
func TestFollowBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := pod("node", 0, 0, "node")
		ended := *runs.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		c := &kubelets{logs: map[string]string{}}
		log := runs.Name + "/node"
		c.write(log, line(0, "a")+line(0, "at once")+"2030-01-01T12:00:01Z cut o")
		c.broken = errors.New("connection lost")
		r, out, errOut := c.reader(false, corev1.PodLogOptions{})
		changes := follow.Watch(t.Context(), 0)
		now := runs
		look := func(context.Context) (sight, error) {
			return sight{targets: selection{index: -1}.targets([]corev1.Pod{now}, c.open), over: now.Status.Phase == corev1.PodSucceeded}, nil
		}
		done := make(chan error)
		go func() { done <- r.follow(t.Context(), changes, look) }()
		synctest.Wait()
		c.write(log, "ff\n"+line(2, "b"))
		// By the clock of the bubble: longer than the longest pause before the stream is opened again.
		time.Sleep(50 * time.Second)
		c.write(log, line(3, "the last"))
		now = ended
		changes.Note()
		expect.NoError(t, <-done)
		expect.Same(t, "Unexpected lines", "a\nat once\ncut o\ncut off\nb\nthe last\n", out.String())
		expect.Same(t, "Unexpected notes", "note: node-0-0 (pod llm-node-0-0-xyz): connection lost\n", errOut.String())
		since := c.asked[1].SinceTime
		expect.That(t, since != nil && strings.HasPrefix(line(0, "a"), since.Format(time.RFC3339Nano)), "Opened again from %v on", since)
		expect.That(t, len(c.asked) <= 10, "Opened %d times in a minute", len(c.asked))
	})
}

// Nothing to follow is said at once, and that nothing was read is no success.
func TestFollowOfNothing(t *testing.T) {
	nothing := errors.New("has pods, but none of those that --job names")
	refused := kit.Forbidden("pods/log")
	type row struct {
		sights       []sight
		notes, fails string
	}
	runs, waits := pod("node", 0, 0, "node"), pod("node", 0, 1, "node")
	waits.Status = corev1.PodStatus{Phase: corev1.PodPending}
	forbidden := func(context.Context, *corev1.Pod, *corev1.PodLogOptions) (io.ReadCloser, error) { return nil, refused }
	expect.Rows(t, map[string]row{
		"no pods until the end":      {sights: []sight{{nothing: nothing}, {nothing: nothing, over: true}}, notes: "note: has pods", fails: "has pods"},
		"no container that starts":   {sights: []sight{{targets: selection{index: -1}.targets([]corev1.Pod{waits}, forbidden), over: true}}, fails: "no container has started"},
		"over before":                {sights: []sight{{nothing: nothing, over: true}}, fails: "has pods"},
		"logs that one may not read": {sights: []sight{{targets: selection{index: -1}.targets([]corev1.Pod{runs}, forbidden), over: true}}, notes: "note: node-0-0", fails: refused.Error()},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			r, _, errOut := (&kubelets{}).reader(true, corev1.PodLogOptions{})
			looks := 0
			err := r.follow(t.Context(), follow.Watch(t.Context(), 0), func(context.Context) (sight, error) {
				looks++
				return tc.sights[looks-1], nil
			})
			expect.Says(t, err, tc.fails)
			expect.That(t, strings.HasPrefix(errOut.String(), tc.notes) && (tc.notes != "") == (errOut.Len() > 0), "Notes %q", errOut.String())
		})
	})
}

func TestFollowFirst(t *testing.T) {
	first := pod("node", 0, 0, "node")
	c := &kubelets{logs: map[string]string{first.Name + "/node": "a\n"}}
	r, _, _ := c.reader(true, corev1.PodLogOptions{TailLines: ptr.To[int64](1)})
	look := func(context.Context) (sight, error) {
		return sight{targets: selection{index: -1}.targets([]corev1.Pod{first}, c.open), over: true}, nil
	}
	expect.NoError(t, r.follow(t.Context(), follow.Watch(t.Context(), 0), look))
	expect.That(t, len(c.asked) == 1 && c.asked[0].TailLines != nil, "Unexpected options %+v: what was there is cut by --tail", c.asked)
}

// TestPodsOf is about whose JobSet it is that has the job's name.
func TestPodsOf(t *testing.T) {
	type row struct {
		owner *metav1.OwnerReference
		// of is the UID of the pod's JobSet; that of the job is "js".
		of           string
		gone, unseen bool
		pods         int
		err          string
	}
	expect.Rows(t, map[string]row{
		"its own":                             {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "job"}, of: "js", pods: 1},
		"its own, with pods of a former one":  {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "job"}, of: "former"},
		"none yet, with pods of a former one": {gone: true, of: "former"},
		"one that may not be seen":            {unseen: true, of: "js", pods: 1},
		"a former TrainJob's":                 {owner: &metav1.OwnerReference{Kind: "TrainJob", Name: "llm", UID: "former"}},
		"somebody else's":                     {err: "JobSet llm is not of TrainJob llm: delete one of them"},
	}, func(t *testing.T, tc row) {
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "js"}}
		if tc.owner != nil {
			tc.owner.APIVersion, tc.owner.Controller = trainjob.GVK.GroupVersion().String(), new(true)
			js.OwnerReferences = []metav1.OwnerReference{*tc.owner}
		}
		of := pod("node", 0, 0, "node")
		of.Namespace = "team"
		metav1.SetMetaDataLabel(&of.ObjectMeta, jobsetapi.JobSetNameKey, "llm")
		metav1.SetMetaDataLabel(&of.ObjectMeta, jobsetapi.JobSetUIDKey, tc.of)
		l := &looker{key: client.ObjectKeyFromObject(js)}
		objects := []client.Object{&of}
		if !tc.gone {
			objects = append(objects, js)
		}
		at := &place{client: kit.Fake(kit.Scheme(trainjob.AddToScheme), objects...).WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error {
			if tc.unseen {
				return kit.Forbidden("jobsets")
			}
			return nil
		})).Build()}
		pods, err := l.podsOf(t.Context(), at, &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "job"}})
		expect.Same(t, "Unexpected number of pods and error", []any{tc.pods, tc.err}, []any{len(pods), expect.Text(err)})
	})
}

// TestManyLogs is about a TrainJob of hundreds of pods: client-go alone opens 5 logs a second.
func TestManyLogs(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://localhost"}},
		Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c"}}, CurrentContext: "c",
	}
	expect.NoError(t, clientcmd.WriteToFile(config, kubeconfig))
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	flags.KubeConfig = &kubeconfig
	clientset := expect.Must(clientset(flags))(t)
	expect.Same(t, "Unexpected requests a second, which every other client has 50 of", float32(50), clientset.CoreV1().RESTClient().GetRateLimiter().QPS())
}

// TestOpener asks an API server, which answers with what it was asked.
func TestOpener(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.WriteString(w, r.URL.String())
		expect.That(t, err == nil, "%v", err)
	}))
	defer server.Close()
	c := expect.Must(kubernetes.NewForConfig(&rest.Config{Host: server.URL}))(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm-node-0-1-xyz"}}
	options := &corev1.PodLogOptions{Container: "node", Follow: true, TailLines: ptr.To[int64](5), SinceSeconds: ptr.To[int64](60)}
	log := expect.Must(openerOf(c)(t.Context(), pod, options))(t)
	got := expect.Must(io.ReadAll(log))(t)
	want := "/api/v1/namespaces/team/pods/llm-node-0-1-xyz/log?container=node&follow=true&sinceSeconds=60&tailLines=5"
	expect.Same(t, "Unexpected request", want, string(got))
}
