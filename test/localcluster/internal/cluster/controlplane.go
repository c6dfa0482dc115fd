// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/nodes"
)

// mastersGroup may do anything, without RBAC.
const mastersGroup = "system:masters"

// clientQPS and clientBurst are Kueue's. Kubernetes' 20 and 50 would be what a test with many jobs measures.
const (
	clientQPS   = 300
	clientBurst = 500
)

//go:embed files/audit-policy.yaml
var auditPolicy []byte

var etcd = component{
	name:  "etcd",
	tier:  storage,
	ports: []string{"client", "peer"},
	args: func(c *Cluster) []string {
		client, peer := "http://"+c.address("etcd", "client"), "http://"+c.address("etcd", "peer")
		return []string{
			"--name=default",
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			// The data lives as long as the cluster; a power cut may have it.
			"--unsafe-no-fsync",
			"--quota-backend-bytes=8589934592",
		}
	},
	probes: []probe{{"http", "client", "/readyz"}},
}

var apiServer = component{
	name:         "kube-apiserver",
	tier:         api,
	ports:        []string{"secure"},
	servingNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	config:       func(context.Context, *Cluster) []byte { return auditPolicy },
	args: func(c *Cluster) []string {
		return append(c.tlsServing("kube-apiserver"),
			"--etcd-servers=http://"+c.address("etcd", "client"),
			"--advertise-address=127.0.0.1",
			// Loopback is no valid endpoint of the Service kubernetes.
			"--endpoint-reconciler-type=none",
			"--token-auth-file="+c.path(tokenFile),
			"--authorization-mode=RBAC",
			"--service-cluster-ip-range=10.96.0.0/16",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file="+c.path(signingKeyFile),
			"--service-account-signing-key-file="+c.path(signingKeyFile),
			// Ends watches when it is asked to stop; it would wait for them else.
			"--shutdown-watch-termination-grace-period=2s",
			"--audit-policy-file="+c.configFile("kube-apiserver"),
			"--audit-log-path="+c.path("logs", "audit.log"),
			// Requests are counted from this one file: never rotate it.
			"--audit-log-maxsize=1048576")
	},
	probes: []probe{{"https", "secure", "/readyz"}},
}

// tlsServing has a component of Kubernetes serve on its port, with its certificate.
func (c *Cluster) tlsServing(name string) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.port(name, "secure")),
		"--tls-cert-file=" + c.certFile(name),
		"--tls-private-key-file=" + c.keyFile(name),
	}
}

// secureServing also has it ask the API server who may.
func (c *Cluster) secureServing(name string) []string {
	return append(c.tlsServing(name),
		"--authentication-kubeconfig="+c.componentKubeconfig(name),
		"--authorization-kubeconfig="+c.componentKubeconfig(name),
		// There are no client certificates here whose authority it could look up.
		"--authentication-skip-lookup=true")
}

// controllers are those that jobs, their pods, volumes and devices need, and that look after
// nodes, namespaces and the aggregated roles of Kueue, and that check the types of policies.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"ephemeral-volume-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"pod-garbage-collector-controller",
	"resourceclaim-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"taint-eviction-controller",
	"ttl-after-finished-controller",
	"validatingadmissionpolicy-status-controller",
}

var controllerManager = component{
	name:   "kube-controller-manager",
	tier:   core,
	ports:  []string{"secure"},
	groups: []string{mastersGroup},
	args: func(c *Cluster) []string {
		return append(c.secureServing("kube-controller-manager"),
			"--kubeconfig="+c.componentKubeconfig("kube-controller-manager"),
			"--controllers="+strings.Join(controllers, ","),
			"--root-ca-file="+c.path(authorityCertFile),
			"--leader-elect=false",
			// Each controller has its own rights, as wherever kubeadm made the cluster: the policies ask for them.
			"--use-service-account-credentials=true",
			fmt.Sprintf("--kube-api-qps=%d", clientQPS),
			fmt.Sprintf("--kube-api-burst=%d", clientBurst))
	},
	probes: []probe{{"https", "secure", "/healthz"}},
}

var scheduler = component{
	name:  "kube-scheduler",
	tier:  core,
	ports: []string{"secure"},
	config: func(_ context.Context, c *Cluster) []byte {
		return attempt.Must(yaml.Marshal(map[string]any{
			"apiVersion":     "kubescheduler.config.k8s.io/v1",
			"kind":           "KubeSchedulerConfiguration",
			"leaderElection": map[string]any{"leaderElect": false},
			"clientConnection": map[string]any{
				"kubeconfig": c.componentKubeconfig("kube-scheduler"), "qps": clientQPS, "burst": clientBurst},
		}))
	},
	args: func(c *Cluster) []string {
		return append(c.secureServing("kube-scheduler"), "--config="+c.configFile("kube-scheduler"))
	},
	probes: []probe{{"https", "secure", "/readyz"}},
}

var kwok = component{
	name:   "kwok",
	tier:   core,
	ports:  []string{"server"},
	groups: []string{mastersGroup},
	config: func(context.Context, *Cluster) []byte { return nodes.KwokConfiguration },
	args: func(c *Cluster) []string {
		return []string{
			"--kubeconfig=" + c.componentKubeconfig("kwok"),
			"--config=" + c.configFile("kwok"),
			"--server-address=" + c.address("kwok", "server"),
			// Stages come from the configuration, not from objects.
			"--enable-crds=",
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + nodes.ManagedAnnotation + "=" + nodes.ManagedValue,
			"--node-ip=127.0.0.1",
		}
	},
	probes: []probe{{"http", "server", "/healthz"}},
}
