// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// part is one of the managers that have to work together, by the names that its own
// manifests give.
type part struct {
	name                  string
	namespace, deployment string
	// configMap and configKey hold its configuration. The name may carry a suffix.
	configMap, configKey string
	// crd is that of the kind that TrainJobs need of it.
	crd string
	// webhooks are its configurations, mutating and validating, where it has one.
	mutating, validating string
	// without says what does not work while it does not answer.
	without string
	// install fixes what is missing of it; of kueue-trainer, Facts.install does.
	install string
}

var (
	kueuePart = &part{
		name: cluster.Kueue.Name, namespace: cluster.Kueue.Namespace, deployment: cluster.Kueue.Deployment, crd: workloadCRD,
		configMap: "kueue-manager-config", configKey: "controller_manager_config.yaml",
		mutating: "kueue-mutating-webhook-configuration", validating: "kueue-validating-webhook-configuration",
		without: "No TrainJob is admitted, and Jobs, JobSets and Kueue's own objects cannot be made or changed.",
		install: "kubectl apply --server-side -f https://github.com/kubernetes-sigs/kueue/releases/download/v0.19.2/manifests.yaml",
	}
	jobSetPart = &part{
		name: cluster.JobSet.Name, namespace: cluster.JobSet.Namespace, deployment: cluster.JobSet.Deployment, crd: jobSetCRD,
		mutating: "jobset-mutating-webhook-configuration", validating: "jobset-validating-webhook-configuration",
		without: "No JobSet can be made, so no TrainJob gets pods.",
		install: "kubectl apply --server-side -f https://github.com/kubernetes-sigs/jobset/releases/download/v0.12.0/manifests.yaml",
	}
	trainerPart = &part{
		name: cluster.Trainer.Name, namespace: cluster.Trainer.Namespace, deployment: cluster.Trainer.Deployment, crd: trainjob.CRDName,
		mutating: "defaulter.trainer.kubeflow.org", validating: "validator.trainer.kubeflow.org",
		without: "TrainJobs cannot be made or changed, and nobody makes their JobSets.",
		install: `kubectl apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0"`,
	}
	managerPart = &part{
		name: "kueue-trainer", namespace: managerconfig.Namespace, deployment: cluster.ManagerDeployment,
		configMap: cluster.ManagerConfigMap, configKey: cluster.ManagerConfigKey,
		mutating: cluster.ManagerWebhook, validating: "kueue-trainer-validating-webhook-configuration",
		without: "TrainJobs cannot be made or changed, and none is started or stopped; running ones run on.",
	}
	// parts in the order in which they are installed.
	parts = []*part{kueuePart, jobSetPart, trainerPart, managerPart}
)

// of are the values that texts about a part name.
func (f *Facts) of(p *part) []any {
	return []any{"part", p.name, "without", p.without, "install", f.install(p), "logs", p.logs(), "restart", p.restart()}
}

// restart is the command that starts the part again.
func (p *part) restart() string {
	return fmt.Sprintf("kubectl -n %s rollout restart deployment %s", p.namespace, p.deployment)
}

// logs is the command that shows what it says.
func (p *part) logs() string {
	return fmt.Sprintf("kubectl -n %s logs deployment/%s --tail=20", p.namespace, p.deployment)
}

// partOf returns the part that a webhook configuration belongs to, or nil.
func partOf(configuration string) *part {
	i := slices.IndexFunc(parts, func(p *part) bool { return configuration == p.mutating || configuration == p.validating })
	if i < 0 {
		return nil
	}
	return parts[i]
}
