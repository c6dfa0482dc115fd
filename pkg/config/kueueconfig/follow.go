// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
)

const (
	// readTimeout is how long one request may take.
	readTimeout = 10 * time.Second
	// readEvery is how often the configuration is asked for. A watch would tell of an edit sooner, and not of the
	// restart by which Kueue goes by it, for which somebody has to look again and again anyway.
	readEvery = 5 * time.Second
)

// ConfigMap is where Kueue's configuration file is.
type ConfigMap struct {
	// Namespace, where Kueue runs, too. Default: kueue-system.
	Namespace string `json:"namespace,omitempty"`
	// Name. Default: kueue-manager-config.
	Name string `json:"name,omitempty"`
	// Key of the file. Default: controller_manager_config.yaml.
	Key string `json:"key,omitempty"`
}

// Default is where Kueue's manifests have it.
var Default = ConfigMap{Namespace: configapi.DefaultNamespace, Name: "kueue-manager-config", Key: "controller_manager_config.yaml"}

// Follower holds the settings in force. It reads Kueue's configuration and follows it while
// the manager runs. What it read last holds where there is nothing to read any more, and until
// Kueue has started with what is there; before the first time, Kueue's defaults do.
type Follower struct {
	// Recorder tells people of a configuration that Kueue does not go by yet; nil tells nobody.
	Recorder events.EventRecorder

	where     ConfigMap
	overrides Overrides
	client    client.Reader

	current atomic.Pointer[Settings]

	// read is set once Kueue's configuration was read, readable while that can be done again.
	read, readable atomic.Bool
	// version is the resourceVersion of the ConfigMap that was read last to hold.
	version atomic.Value
	// unanswered is set when nobody said at the last attempt whether there is one.
	unanswered bool
	// problem is what was told of it last.
	problem string
	// ahead: what holds here is none of the running Kueue's, since this process started after an edit of its ConfigMap.
	ahead atomic.Bool
	// comes is set while Kueue will wait for pods to be ready once it has started with the ConfigMap.
	comes atomic.Bool
	// toldAwaited is the version of the ConfigMap that people were told of.
	toldAwaited string

	mu      sync.Mutex
	changed []func(context.Context) error
	// differ is which overrides were told last.
	differ []Difference
}

// NewFollower returns a Follower with Kueue's defaults, and what overrides them.
func NewFollower(c client.Reader, where ConfigMap, overrides Overrides) *Follower {
	f := &Follower{client: c, where: where, overrides: overrides}
	settings, _ := Of(Defaults(where.Namespace), overrides)
	f.current.Store(settings)
	return f
}

// Fixed returns a Follower of settings that do not change.
func Fixed(settings Settings) *Follower {
	f := &Follower{}
	f.current.Store(&settings)
	f.read.Store(true)
	return f
}

// Settings returns what holds now. Nobody may change it.
func (f *Follower) Settings() *Settings { return f.current.Load() }

// WaitsForPodsReady reports whether Kueue waits for pods to be ready, or will once it is restarted: then it takes a job of
// which nobody has said that they are for one that has waited since its admission, and evicts it.
func (f *Follower) WaitsForPodsReady() bool {
	return f.Settings().WaitForPodsReady != nil || f.comes.Load()
}

// Known reports whether Kueue's configuration was read at least once. Before that its defaults
// hold, which may not be Kueue's settings.
func (f *Follower) Known() bool { return f.read.Load() }

// Ahead reports whether the settings are those of an edit that the running Kueue may not go by yet: this process started after it.
func (f *Follower) Ahead() bool { return f.ahead.Load() }

// Readable reports whether Kueue's configuration could be read at the last attempt.
func (f *Follower) Readable() bool { return f.readable.Load() }

// Version returns the resourceVersion of the ConfigMap whose settings hold; empty where none was read.
func (f *Follower) Version() string {
	version, _ := f.version.Load().(string)
	return version
}

// Differ returns the settings and gates that are overridden with other values. Nobody may change it.
func (f *Follower) Differ() []Difference {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.differ
}

// OnChange has do called after every change of the settings.
func (f *Follower) OnChange(do func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = append(f.changed, do)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (f *Follower) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (f *Follower) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, f.Read, readEvery)
	return nil
}

// ReadFirst is Read until there is an answer: settings that could not be read are not the defaults, and jobs would run by
// those.
func (f *Follower) ReadFirst(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		f.Read(ctx)
		return !f.unanswered, nil
	})
}

// Read reads Kueue's configuration once, and lets it hold.
func (f *Follower) Read(ctx context.Context) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var found corev1.ConfigMap
	err := f.client.Get(reading, client.ObjectKey{Namespace: f.where.Namespace, Name: f.where.Name}, &found)
	if ctx.Err() != nil {
		return
	}
	f.unanswered = err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err)
	var cfg *configapi.Configuration
	if err == nil {
		cfg, err = f.decode(&found)
	}
	awaited := false
	if err == nil {
		awaited, err = f.awaitsRestart(reading, &found, cfg)
	}
	if awaited && !f.ahead.Load() {
		f.readable.Store(true)
		return
	}
	f.take(ctx, cfg, err)
	f.comes.Store(false)
	if err == nil {
		f.version.Store(found.ResourceVersion)
	}
}

// awaitsRestart reports whether Kueue has yet to start with other settings than those in force, and tells people. Where
// nothing tells when Kueue started, it is taken to have. Those in force before the first time, and since then those that
// were read ahead of Kueue's restart, are no settings of the running Kueue, so there is nothing to hold.
func (f *Follower) awaitsRestart(ctx context.Context, cm *corev1.ConfigMap, cfg *configapi.Configuration) (bool, error) {
	settings, _ := Of(cfg, f.overrides) // An unknown feature gate is no reason not to wait; take logs it when they hold.
	ahead := f.ahead.Load() || !f.read.Load()
	f.ahead.Store(ahead)
	if !ahead && equality.Semantic.DeepEqual(settings, f.Settings()) {
		return false, nil
	}
	var pods corev1.PodList
	if err := f.client.List(ctx, &pods, client.InNamespace(cm.Namespace)); err != nil && !apierrors.IsForbidden(err) && f.read.Load() {
		return false, fmt.Errorf("listing the pods of Kueue: %w", err)
	}
	pod, changed := Behind(cm, pods.Items, time.Now())
	if pod == nil {
		f.ahead.Store(false)
		return false, nil
	}
	f.tellAwaited(cm, pod, changed)
	if waits := settings.WaitForPodsReady != nil; f.comes.Swap(waits) != waits {
		f.notify(ctx, ctrl.LoggerFrom(ctx))
	}
	return true, nil
}

// tellAwaited tells people once that Kueue has to be restarted.
func (f *Follower) tellAwaited(cm *corev1.ConfigMap, pod *corev1.Pod, changed time.Time) {
	if f.Recorder == nil || f.toldAwaited == cm.ResourceVersion {
		return
	}
	f.toldAwaited = cm.ResourceVersion
	here := "and so does kueue-trainer"
	if f.ahead.Load() {
		here = "and kueue-trainer, which started since, goes by the new one"
	}
	f.Recorder.Eventf(cm, pod, corev1.EventTypeWarning, "KueueNotRestarted", "Configure",
		"The configuration changed at %s, after pod %s started: Kueue goes by the former one until it is restarted, %s",
		changed.UTC().Format(time.RFC3339), pod.Name, here)
}

func (f *Follower) decode(found *corev1.ConfigMap) (*configapi.Configuration, error) {
	file, ok := found.Data[f.where.Key]
	if !ok {
		return nil, fmt.Errorf("it has no key %s", f.where.Key)
	}
	return Decode([]byte(file), f.where.Namespace)
}

// take lets what was read hold, or tells why that cannot be.
func (f *Follower) take(ctx context.Context, cfg *configapi.Configuration, err error) {
	log := ctrl.LoggerFrom(ctx).WithName("kueue-configuration").WithValues("configMap", klog.KRef(f.where.Namespace, f.where.Name), "file", f.where.Key)
	settings := f.Settings()
	if err != nil {
		f.readable.Store(false)
		f.tellUnread(log, fmt.Errorf("reading it: %w", err))
	} else {
		f.readable.Store(true)
		f.read.Store(true)
		if settings, err = Of(cfg, f.overrides); err != nil {
			if f.news(err) {
				log.Error(err, "Left out feature gates that this release does not know or cannot change",
					"remedy", "install the release that is made for this Kueue, where TrainJobs need them")
			}
		} else if f.problem != "" {
			f.problem = ""
			log.Info("Took over Kueue's configuration again")
		}
		f.compare(log, cfg, settings)
	}
	f.hold(ctx, log, settings)
}

// news reports whether a problem was not told yet, and takes it for told.
func (f *Follower) news(problem error) bool {
	before := f.problem
	f.problem = problem.Error()
	return f.problem != before
}

func (f *Follower) tellUnread(log logr.Logger, problem error) {
	if !f.news(problem) {
		return
	}
	holds := "Kueue's defaults, with what this manager's configuration sets"
	if f.read.Load() {
		holds = "what was read last"
	}
	log.Error(problem, "Could not take over Kueue's configuration", "inForce", holds,
		"remedy", "let the manager read it, or set what differs from Kueue's defaults in the manager's configuration")
}

func (f *Follower) compare(log logr.Logger, cfg *configapi.Configuration, here *Settings) {
	kueues, _ := Of(cfg, Overrides{})
	differ := slices.Concat(Differences(kueues, here), GateDifferences(kueues, here))
	if equality.Semantic.DeepEqual(differ, f.Differ()) {
		return
	}
	f.mu.Lock()
	f.differ = differ
	f.mu.Unlock()
	if len(differ) > 0 {
		log.Info("Overrode settings of Kueue, so TrainJobs are treated otherwise than other jobs", "settings", differ,
			"remedy", "leave the fields out of this manager's configuration, and Kueue's hold")
	}
}

func (f *Follower) hold(ctx context.Context, log logr.Logger, settings *Settings) {
	if err := applyGates(settings.FeatureGates); err != nil {
		log.Error(err, "Could not set Kueue's feature gates")
	}
	if before := f.current.Swap(settings); equality.Semantic.DeepEqual(before, settings) {
		return
	}
	logged := *settings
	logged.FeatureGates = nil // There are too many of them.
	log.Info("Changed the settings that are shared with Kueue", "settings", logged)
	f.notify(ctx, log)
}

func (f *Follower) notify(ctx context.Context, log logr.Logger) {
	f.mu.Lock()
	changed := slices.Clone(f.changed)
	f.mu.Unlock()
	for _, do := range changed {
		if err := do(ctx); err != nil {
			log.Error(err, "Could not follow a change of Kueue's settings")
		}
	}
}
