// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// part is one of the managers that have to work together, and what there is to say of it.
type part struct {
	cluster.Part
	// configKey is where its configuration stands in its ConfigMap.
	configKey string
	// webhooks are its configurations, mutating and validating, where it has one.
	mutating, validating string
	// asked is what none but its webhooks and those of the parts before it are asked about by name.
	asked schema.GroupResource
	// without says what does not work while it does not answer.
	without string
	// install fixes what is missing of it; of kueue-trainer, Facts.install does.
	install string
}

var (
	kueuePart = &part{
		Part: cluster.Kueue, configKey: cluster.KueueConfigKey,
		mutating: "kueue-mutating-webhook-configuration", validating: "kueue-validating-webhook-configuration",
		asked:   schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "clusterqueues"},
		without: "No TrainJob is admitted, and Jobs, JobSets and Kueue's own objects cannot be made or changed.",
		install: "kubectl apply --server-side -f https://github.com/kubernetes-sigs/kueue/releases/download/v0.19.2/manifests.yaml",
	}
	jobSetPart = &part{
		Part:     cluster.JobSet,
		mutating: "jobset-mutating-webhook-configuration", validating: "jobset-validating-webhook-configuration",
		asked:   schema.GroupResource{Group: jobsetapi.SchemeGroupVersion.Group, Resource: "jobsets"},
		without: "No JobSet can be made, so no TrainJob gets pods.",
		install: "kubectl apply --server-side -f https://github.com/kubernetes-sigs/jobset/releases/download/v0.12.0/manifests.yaml",
	}
	trainerPart = &part{
		Part:     cluster.Trainer,
		mutating: "defaulter.trainer.kubeflow.org", validating: "validator.trainer.kubeflow.org",
		asked:   schema.GroupResource{Group: trainjob.GVK.Group, Resource: "trainjobs"},
		without: "TrainJobs cannot be made or changed, and nobody makes their JobSets.",
		install: `kubectl apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0"`,
	}
	managerPart = &part{
		Part: cluster.Manager, configKey: cluster.ManagerConfigKey,
		mutating: cluster.Manager.Webhook, validating: "kueue-trainer-validating-webhook-configuration",
		without: "TrainJobs cannot be made or changed, and none is started or stopped; running ones run on.",
	}
	// parts in the order in which they are installed.
	parts = []*part{kueuePart, jobSetPart, trainerPart, managerPart}
)

// of are the values that texts about a part name.
func (f *Facts) of(p *part) []any {
	return []any{"part", p.Name, "without", p.without, "install", f.install(p), "reinstall", f.reinstall(p), "logs", p.logs(), "restart", p.restart()}
}

// restart is the command that starts the part again.
func (p *part) restart() string {
	return fmt.Sprintf("kubectl -n %s rollout restart deployment %s", p.Namespace, p.Deployment)
}

// logs is the command that shows what it says.
func (p *part) logs() string {
	return fmt.Sprintf("kubectl -n %s logs deployment/%s --tail=20", p.Namespace, p.Deployment)
}
