// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the cluster that the tests bring up, below the
// repository's root. A cluster of `make local-up` is left alone.
const localDir = ".local-faults"

// settleTimeout ends the wait for what a healthy control plane does in a second or
// two, on a machine that builds something beside it.
const settleTimeout = 45 * time.Second

type harness struct {
	cluster  *world.Cluster
	api      dynamic.Interface
	launch   world.Process
	proxy    *apiproxy.Proxy
	child    *child
	webhooks *interposer
}

// newHarness puts the manager of the cluster of KUBECONFIG behind a proxy, or that of a local control plane which it
// brings up, until the test is over.
func newHarness(ctx context.Context, t *testing.T) *harness {
	c := expect.Must(world.Open(ctx, localDir, os.Stderr))(t)
	expect.Need(t, c.Local(), "%s is not that of a local control plane: these tests kill processes", c.Kubeconfig)
	t.Cleanup(func() {
		if os.Getenv("KUBECONFIG") != "" {
			expect.NoError(t, c.Control(ctx, "start", c.Manager(), os.Stderr))
		}
		expect.NoError(t, c.Stop(ctx, os.Stderr))
	})
	h := &harness{cluster: c, api: expect.Must(dynamic.NewForConfig(c.Config))(t), launch: expect.Must(c.Process(c.Manager()))(t)}
	t.Cleanup(func() { expect.NoError(t, c.ExtendCRD(ctx, false)) })
	expect.NoError(t, c.ExtendCRD(ctx, true))
	h.proxy = expect.Must(apiproxy.New(c.Config))(t)
	t.Cleanup(h.proxy.Close)
	h.webhooks = newInterposer(h)
	t.Cleanup(h.webhooks.server.Close)
	h.child = expect.Must(newChild(c, h.launch, h.proxy, false))(t)
	expect.NoError(t, c.Control(ctx, "stop", c.Manager(), os.Stderr))
	h.child.start()
	t.Cleanup(func() { h.child.kill() })
	expect.NoError(t, h.child.serves(ctx))
	// Those of runs that somebody interrupted: their pods would keep the nodes.
	for _, ns := range world.All(ctx, gomega.NewWithT(t), c.Client, &corev1.NamespaceList{}).Items {
		if strings.HasPrefix(ns.Name, "faults-") {
			expect.NoError(t, c.Client.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(ns.Name)))
			expect.NoError(t, client.IgnoreNotFound(c.Client.Delete(ctx, &ns)))
		}
	}
	return h
}

// child is the manager under test: the shipped binary in a process of its own, which talks to the API server through a
// proxy. One that ends is started again, as a Deployment would.
type child struct {
	argv, env   []string
	log, health string

	// exits counts the times that the process ended by itself.
	exits atomic.Int32
	// kill ends the process, as a power cut would, and returns when it is gone; nil before start.
	kill func()
}

// newChild prepares the manager of a cluster to run behind a proxy, without leader election, which would make every
// restart wait for the lease of the process before. A second one beside it gets ports of its own.
func newChild(cluster *world.Cluster, as world.Process, proxy *apiproxy.Proxy, second bool) (*child, error) {
	dir, component := cluster.LocalDir(), cluster.Manager()
	health, err := cluster.Address(component, "health")
	if err != nil {
		return nil, err
	}
	name, changes := "faults-"+component, map[string]any{"leaderElection": map[string]any{"leaderElect": false}}
	if second {
		name, health = name+"-2", fmt.Sprintf("127.0.0.1:%d", world.FreePort())
		changes["health"] = map[string]any{"healthProbeBindAddress": health}
		changes["metrics"] = map[string]any{"bindAddress": fmt.Sprintf("127.0.0.1:%d", world.FreePort())}
		changes["webhook"] = map[string]any{"port": world.FreePort()}
	}
	kubeconfig, config := filepath.Join(dir, "kubeconfigs", name), filepath.Join(dir, "config", name+".yaml")
	if err := writeKubeconfig(filepath.Join(dir, "kubeconfigs", component), kubeconfig, proxy); err != nil {
		return nil, err
	}
	if err := cluster.WriteConfig(component, config, changes); err != nil {
		return nil, err
	}
	return &child{
		// Of two settings the last one counts.
		argv: slices.Concat(as.Argv, []string{"--config=" + config}), env: slices.Concat(as.Env, []string{"KUBECONFIG=" + kubeconfig}),
		log: filepath.Join(dir, "logs", name+".log"), health: "http://" + health + "/readyz",
	}, nil
}

func writeKubeconfig(from, to string, proxy *apiproxy.Proxy) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = proxy.URL(), proxy.CA()
	}
	return clientcmd.WriteToFile(*config, to)
}

// start runs the process until kill; it does not wait until that is ready.
func (c *child) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	c.kill = func() {
		cancel()
		running.Wait()
	}
	// With a pause: one that cannot start would keep a processor busy.
	running.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if c.run(ctx); ctx.Err() == nil {
				c.exits.Add(1)
			}
		}, 100*time.Millisecond)
	})
}

func (c *child) crash() {
	c.kill()
	c.start()
}

// run starts the process and returns when it has ended. Why, its log says.
func (c *child) run(ctx context.Context) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	// It does not outlive the tests, however they end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(log, err)
	}
}

func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, body, err := world.Ask(ctx, c.health, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %s", c.health, body)
	}
	return err
}

func (c *child) serves(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settleTimeout, true, func(ctx context.Context) (bool, error) {
		return c.ready(ctx) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the manager is not ready: %w\n%s", err, c.lastLines(20))
	}
	return nil
}

func (c *child) lastLines(n int) string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

type webhookFault string

const (
	webhookDown webhookFault = "down"
	webhookSlow webhookFault = "slow"
)

// webhookDelay is how late a slow webhook answers; the API server waits for 10 s.
const webhookDelay = 2 * time.Second

// insecure reaches webhooks on loopback, whose certificates the API server verifies when nobody is in between.
var insecure = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nobody but this test listens on these ports

// interposer is an endpoint that webhook configurations are pointed at for a while.
type interposer struct {
	h      *harness
	server *httptest.Server
	// paths leads to the endpoints of before.
	paths             http.ServeMux
	redirected, calls atomic.Int32
}

func newInterposer(h *harness) *interposer {
	i := &interposer{h: h}
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.calls.Add(1)
		i.paths.ServeHTTP(w, r)
	}))
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	return i
}

// webhookOwner is whose webhooks are meant: by which configurations, and for which resource.
type webhookOwner struct{ name, mutating, validating, resource string }

func (o webhookOwner) String() string { return o.name }

// The integration's configurations are named like its manager.
var (
	ourWebhooks      = webhookOwner{"the integration", "MANAGER-mutating-webhook-configuration", "MANAGER-validating-webhook-configuration", "trainjobs"}
	trainersWebhooks = webhookOwner{"Trainer", "defaulter.trainer.kubeflow.org", "validator.trainer.kubeflow.org", "trainjobs"}
	jobSetsWebhooks  = webhookOwner{"JobSet", "jobset-mutating-webhook-configuration", "jobset-validating-webhook-configuration", "jobsets"}
)

// disturb makes the webhooks of an owner down or slow, and returns what puts them back.
func (i *interposer) disturb(ctx context.Context, owner webhookOwner, fault webhookFault) (restore func() error, err error) {
	i.calls.Store(0)
	var back []func() error
	restore = func() error {
		var err error
		for _, back := range back {
			err = errors.Join(err, back())
		}
		return err
	}
	for kind, name := range map[string]string{"MutatingWebhookConfiguration": owner.mutating, "ValidatingWebhookConfiguration": owner.validating} {
		config := &unstructured.Unstructured{}
		config.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		err := i.h.cluster.Client.Get(ctx, client.ObjectKey{Name: strings.Replace(name, "MANAGER", i.h.cluster.Manager(), 1)}, config)
		if apierrors.IsNotFound(err) && owner == trainersWebhooks {
			continue // Trainer 2.1 has no mutating ones.
		}
		before := config.DeepCopy()
		if err == nil {
			err = i.redirect(config, owner, fault)
		}
		if err == nil {
			err = i.h.cluster.Client.Patch(ctx, config.DeepCopy(), client.MergeFrom(before))
		}
		if err != nil {
			return nil, errors.Join(err, restore())
		}
		// Whatever stood there in between.
		back = append(back, func() error {
			return i.h.cluster.Client.Patch(context.WithoutCancel(ctx), before.DeepCopy(), client.MergeFrom(config))
		})
	}
	return restore, nil
}

// redirect has the webhooks that are about the owner's resource go by paths of their own: Kueue has some for much else.
func (i *interposer) redirect(config *unstructured.Unstructured, owner webhookOwner, fault webhookFault) error {
	webhooks, _, err := unstructured.NestedSlice(config.Object, "webhooks")
	for _, w := range webhooks {
		// What is read of them is the same for both kinds.
		var webhook admissionregistrationv1.ValidatingWebhook
		err = errors.Join(err, runtime.DefaultUnstructuredConverter.FromUnstructured(w.(map[string]any), &webhook))
		if !slices.ContainsFunc(webhook.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(r.Resources, owner.resource)
		}) {
			continue
		}
		if webhook.ClientConfig.URL == nil {
			return fmt.Errorf("webhook %s has no URL", webhook.Name)
		}
		target, errURL := url.Parse(*webhook.ClientConfig.URL)
		err = errors.Join(err, errURL)
		w.(map[string]any)["clientConfig"] = map[string]any{"url": i.server.URL + i.path(target, fault),
			"caBundle": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))}
	}
	return errors.Join(err, unstructured.SetNestedSlice(config.Object, webhooks, "webhooks"))
}

// path is a new one, behind which a webhook fares ill.
func (i *interposer) path(target *url.URL, fault webhookFault) string {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = target.Scheme, target.Host, target.Path
		},
		Transport: insecure,
		ErrorLog:  i.server.Config.ErrorLog,
	}
	path := fmt.Sprintf("/%d", i.redirected.Add(1))
	i.paths.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if fault == webhookDown {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		select {
		case <-time.After(webhookDelay):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	return path
}
