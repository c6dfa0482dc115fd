// SPDX-License-Identifier: Apache-2.0

// Package config is the manager's configuration file: a versioned kind, strictly
// decoded. Settings that Kueue has too are Kueue's, read from its own configuration; they
// can be overridden under Kueue's names.
package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-base/config/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

const (
	// APIVersion and Kind head every configuration file.
	APIVersion = "config.kueue-trainer.dev/v1alpha1"
	// Kind is described at APIVersion.
	Kind = "Configuration"

	// TrainJobKind is the one key of controller.groupKindConcurrency.
	TrainJobKind = "TrainJob.trainer.kubeflow.org"

	// Namespace is where the manager runs unless the file says otherwise.
	Namespace = "kueue-trainer-system"
)

// Configuration is the content of the file. The zero value of a field means its
// default; Default sets them all.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// Namespace of the manager. Default: kueue-trainer-system.
	Namespace string `json:"namespace,omitempty"`

	// Webhook is where the admission webhooks listen.
	// Default: port 9443, certificates in /tmp/k8s-webhook-server/serving-certs.
	Webhook configapi.ControllerWebhook `json:"webhook,omitempty"`
	// LeaderElection. Default: on, with Kubernetes' recommended durations.
	LeaderElection *v1alpha1.LeaderElectionConfiguration `json:"leaderElection,omitempty"`
	// Metrics is where Prometheus scrapes.
	Metrics Metrics `json:"metrics,omitempty"`
	// Health is where probes go. Default: :8081, /healthz and /readyz.
	Health configapi.ControllerHealth `json:"health,omitempty"`
	// Controller sets how much is done at a time.
	Controller Controller `json:"controller,omitempty"`
	// ClientConnection limits requests to the API server, all kinds together.
	// Default: 300 per second, bursts of 500; a negative qps means no limit.
	ClientConnection *configapi.ClientConnection `json:"clientConnection,omitempty"`
	// InternalCertManagement makes the manager rotate its own serving certificate.
	// Default: on. Turn it off where cert-manager or a file mount provides it.
	InternalCertManagement *configapi.InternalCertManagement `json:"internalCertManagement,omitempty"`

	// KueueConfigMap is where Kueue has its configuration, whose settings hold here, too.
	// Default: key controller_manager_config.yaml of ConfigMap kueue-manager-config in
	// namespace kueue-system.
	KueueConfigMap kueueconfig.ConfigMap `json:"kueueConfigMap,omitzero"`
	// Overrides are settings of Kueue's that count instead of what Kueue itself has: for
	// those who cannot let the manager read that ConfigMap. Default: none.
	kueueconfig.Overrides `json:",inline"`

	// StartTimeout is how long an admitted TrainJob may be without a JobSet, a child Job or a
	// pod that somebody refuses, before its quota is given back; where nobody says why, it is
	// five times as long. Default: 2m.
	StartTimeout metav1.Duration `json:"startTimeout,omitempty"`

	// WaitForJobSet is how long a new TrainJob waits for its JobSet, before it queues without; 0s
	// means not at all. Default: 10s.
	WaitForJobSet *metav1.Duration `json:"waitForJobSet,omitempty"`

	// TolerationRules are for accelerators of other vendors than NVIDIA, whose tolerations
	// are built in. Default: none.
	TolerationRules []TolerationRule `json:"tolerationRules,omitempty"`
}

// Metrics is where and how metrics are served, and the manager's debug pages beside them.
type Metrics struct {
	// BindAddress; "0" turns metrics off. Default: :8443.
	BindAddress string `json:"bindAddress,omitempty"`
	// SecureServing puts metrics behind TLS, authentication and authorization. Default: true.
	SecureServing *bool `json:"secureServing,omitempty"`
	// LocalQueueLabels adds labels namespace and local_queue to the metrics of queues; without it they
	// are empty, and there is one series for each ClusterQueue. Default: true.
	LocalQueueLabels *bool `json:"localQueueLabels,omitempty"`
	// Pprof serves Go profiles below /debug/pprof/, for whom the API server lets get that URL.
	// Default: false.
	Pprof bool `json:"pprof,omitempty"`
	// UserLabel is a label of TrainJobs. Its value becomes label user of the resource seconds
	// that the manager accounts for. Default: none.
	UserLabel string `json:"userLabel,omitempty"`
}

// Controller sets how much is done at a time.
type Controller struct {
	// GroupKindConcurrency is the number of workers per kind, as in Kueue's
	// configuration; its one key is TrainJob.trainer.kubeflow.org. Default: 20.
	GroupKindConcurrency map[string]int `json:"groupKindConcurrency,omitempty"`
}

// Load reads, defaults and validates the file at path; without a path it returns the
// defaults. Unknown and doubled fields are errors.
func Load(path string) (*Configuration, error) {
	cfg := &Configuration{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}}
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		if cfg, err = decode(data); err != nil {
			return nil, fmt.Errorf("configuration file %s: %w", path, err)
		}
	}
	Default(cfg)
	if errs := validate(cfg); len(errs) > 0 {
		return nil, fmt.Errorf("configuration file %s: %w", path, errs.ToAggregate())
	}
	return cfg, nil
}

// decode takes one document, its fields spelled exactly and given once.
func decode(data []byte) (*Configuration, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	document, err := reader.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := reader.Read(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one YAML document; keep one")
	}
	data, err = yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	cfg := &Configuration{}
	unknown, err := json.UnmarshalStrict(data, cfg)
	return cfg, errors.Join(append(unknown, err)...)
}

// Default fills in what is not set.
func Default(cfg *Configuration) {
	setDefault(&cfg.Namespace, Namespace)
	setDefault(&cfg.Webhook.Port, ptr.To(9443))
	setDefault(&cfg.Webhook.CertDir, "/tmp/k8s-webhook-server/serving-certs")
	setDefault(&cfg.Metrics.BindAddress, ":8443")
	setDefault(&cfg.Metrics.SecureServing, ptr.To(true))
	setDefault(&cfg.Metrics.LocalQueueLabels, ptr.To(true))
	setDefault(&cfg.Health.HealthProbeBindAddress, ":8081")
	setDefault(&cfg.ClientConnection, &configapi.ClientConnection{})
	setDefault(&cfg.ClientConnection.QPS, ptr.To[float32](300))
	setDefault(&cfg.ClientConnection.Burst, ptr.To[int32](500))
	setDefault(&cfg.InternalCertManagement, &configapi.InternalCertManagement{})
	setDefault(&cfg.InternalCertManagement.Enable, ptr.To(true))
	setDefault(&cfg.InternalCertManagement.WebhookServiceName, ptr.To("kueue-trainer-webhook-service"))
	setDefault(&cfg.InternalCertManagement.WebhookSecretName, ptr.To("kueue-trainer-webhook-server-cert"))
	setDefault(&cfg.StartTimeout, metav1.Duration{Duration: 2 * time.Minute})
	setDefault(&cfg.WaitForJobSet, &metav1.Duration{Duration: WaitForJobSet})
	if len(cfg.Controller.GroupKindConcurrency) == 0 {
		cfg.Controller.GroupKindConcurrency = map[string]int{TrainJobKind: 20}
	}
	setDefault(&cfg.KueueConfigMap.Namespace, kueueconfig.Default.Namespace)
	setDefault(&cfg.KueueConfigMap.Name, kueueconfig.Default.Name)
	setDefault(&cfg.KueueConfigMap.Key, kueueconfig.Default.Key)
	setDefault(&cfg.LeaderElection, &v1alpha1.LeaderElectionConfiguration{})
	setDefault(&cfg.LeaderElection.ResourceLock, "leases")
	setDefault(&cfg.LeaderElection.ResourceName, "manager.kueue-trainer.dev")
	setDefault(&cfg.LeaderElection.ResourceNamespace, cfg.Namespace)
	v1alpha1.RecommendedDefaultLeaderElectionConfiguration(cfg.LeaderElection)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// How long a new TrainJob stays out of its queue while what others make of it is not there: the manager waits, and the
// plugin tells.
const (
	// WaitForJobSet is how long a TrainJob waits for its JobSet, before it queues without, unless the
	// manager's configuration says otherwise.
	WaitForJobSet = 10 * time.Second

	// WaitForJobs is how long it waits for the child Jobs of that. Kueue orders a queue by when jobs
	// came to it, and JobSet takes long for many Jobs: waiting for all of them would have a
	// large job overtaken by the small ones after it.
	WaitForJobs = 2 * time.Second
)
