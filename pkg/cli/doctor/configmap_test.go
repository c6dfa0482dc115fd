// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPrintConfigMap(t *testing.T) {
	const (
		external   = "  externalFrameworks:\n  - TrainJob.v1alpha1.trainer.kubeflow.org\n"
		listed     = "integrations:\n" + external
		managesAll = kueueHead + "manageJobsWithoutQueueName: true\n" + listed
		leftOut    = "  - key: kubernetes.io/metadata.name\n    operator: NotIn\n    values:\n    - kueue-trainer-system\n"
		teams      = "managedJobsNamespaceSelector: # ours\n  matchExpressions:\n  - key: team\n    operator: NotIn\n    values: [a]\n"
		workers    = "multiKueue:\n  gcInterval: 1m\n  externalFrameworks:\n  - name: Foo.v1.example.com # keep\n"
		gets       = "  - name: TrainJob.v1alpha1.trainer.kubeflow.org\n"
		ours       = "kind: Configuration # ours\ncontroller:\n  groupKindConcurrency:\n    TrainJob.trainer.kubeflow.org: 3\n"
	)
	type row struct {
		kueue, manager, flag             string
		ofKueue, workers, withoutJobSets bool
		want, wantErr                    string
	}
	expect.Rows(t, map[string]row{
		"TrainJob goes from one list to the other, comments stay": {ofKueue: true,
			kueue: "# ours\nintegrations:\n  frameworks:\n  - batch/job # keep\n  - trainer.kubeflow.org/trainjob\nwaitForPodsReady:\n  timeout: 5m\n",
			want:  "# ours\nintegrations:\n  frameworks:\n  - batch/job # keep\n" + external + "waitForPodsReady:\n  timeout: 5m\n"},
		"TrainJob in both lists": {ofKueue: true,
			kueue: "integrations:\n  frameworks:\n  - trainer.kubeflow.org/trainjob\n" + external + "  - Foo.v1.example.com\n", want: listed + "  - Foo.v1.example.com\n"},
		"JobSets go where they are not queued": {ofKueue: true, withoutJobSets: true,
			kueue: "integrations:\n  frameworks:\n  - batch/job\n  - jobset.x-k8s.io/jobset\n" + external, want: "integrations:\n  frameworks:\n  - batch/job\n" + external},
		"the manager's namespace goes out of a selector": {ofKueue: true, kueue: managesAll + teams, want: managesAll + teams + leftOut},
		"the manager's namespace goes out of Kueue's default": {ofKueue: true, kueue: managesAll,
			want: managesAll + "managedJobsNamespaceSelector:\n  matchExpressions:\n  - key: kubernetes.io/metadata.name\n    operator: NotIn\n    values:\n    - kube-system\n    - kueue-system\n" + leftOut},
		"TrainJob goes to the workers of MultiKueue": {ofKueue: true, workers: true, kueue: listed + workers, want: listed + workers + gets},
		"TrainJob goes to the workers already":       {ofKueue: true, workers: true, kueue: listed + "multiKueue:\n  externalFrameworks:\n" + gets, want: listed + "multiKueue:\n  externalFrameworks:\n" + gets},
		"no integrations":                            {ofKueue: true, kueue: "kind: Configuration\n", want: "kind: Configuration\n" + listed},
		"the manager loses what overrides Kueue, and gets the gates of Kueue's flag": {
			kueue: kueueHead + "featureGates:\n  MultiKueue: false\n", flag: "--feature-gates=PartialAdmission=false,FromTheFuture=true",
			manager: ours + "manageJobsWithoutQueueName: true\nintegrations:\n  labelKeysToCopy: [team]\nfeatureGates:\n  MultiKueue: true\nwaitForPodsReady:\n  timeout: 5m\n",
			want:    ours + "featureGates:\n  PartialAdmission: false\n"},
		"a configuration that is no mapping": {ofKueue: true, kueue: "[]",
			wantErr: "ConfigMap kueue-system/kueue-manager-config, controller_manager_config.yaml: it is no YAML mapping"},
	}, func(t *testing.T, tc row) {
		f := &Facts{ConfigMaps: []corev1.ConfigMap{configMap(kueuePart, tc.kueue), configMap(managerPart, tc.manager)}}
		f.ConfigMaps[0].ResourceVersion = "7"
		if tc.workers {
			f.MultiKueueClusters = []kueue.MultiKueueCluster{{}}
		}
		f.Deployments = []appsv1.Deployment{deployment(kueuePart)}
		f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{tc.flag}
		var out strings.Builder
		f.Namespaces = partNamespaces()
		p, change := managerPart, f.likeKueue
		if tc.ofKueue {
			p, change = kueuePart, func(config *kyaml.RNode) error { return f.besideManager(config, tc.withoutJobSets) }
		}
		err := printConfigMap(&out, f, p, change)
		if tc.wantErr != "" {
			expect.Same(t, "Unexpected error", tc.wantErr, expect.Text(err))
			return
		}
		expect.NoError(t, err)
		got := expect.FromYAML[corev1.ConfigMap](t, out.String())
		expect.Same(t, "Unexpected configuration", tc.want, got.Data[p.configKey])
		expect.That(t, !tc.ofKueue || got.ResourceVersion == "7", "The resourceVersion is %q: a change in between would be lost", got.ResourceVersion)
	})
}

func TestPrintConfigMapUnderAnotherKey(t *testing.T) {
	f := healthy(t)
	f.managerConfig("kind: Configuration\nkueueConfigMap: {namespace: queues, name: mine, key: other.yaml}\n")
	f.ConfigMaps = append(f.ConfigMaps, *kit.ConfigMap("queues", "mine", "other.yaml", "a: b\n"))
	var out strings.Builder
	expect.NoError(t, printConfigMap(&out, f, kueuePart, func(*kyaml.RNode) error { return nil }))
	got := expect.FromYAML[corev1.ConfigMap](t, out.String())
	expect.Same(t, "Unexpected content", map[string]string{"other.yaml": "a: b\n"}, got.Data)
}

func TestPrintConfigMapThatIsNotThere(t *testing.T) {
	err := printConfigMap(&strings.Builder{}, &Facts{}, kueuePart, func(*kyaml.RNode) error { return nil })
	const want = "there is no ConfigMap kueue-system/kueue-manager-config: Kueue is not installed, or keeps its configuration elsewhere"
	expect.Same(t, "Unexpected error", want, expect.Text(err))
}
