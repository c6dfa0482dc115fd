// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

// differing is about the manager's ConfigMap, suffix included.
func (f *Facts) differing(settings []string, found func(hit)) {
	if len(settings) == 0 {
		return
	}
	fix := cmp.Or(f.upgrade(configure(f.valuesLikeKueue())), fixManagerConfig)
	found(about("ConfigMap", managerPart.Namespace, f.configMap(managerPart).Name, "differ", strings.Join(settings, ", "), "fix", fix))
}

// managedManager finds a Kueue that holds the manager's own pods and Jobs back, since it
// manages what names no queue in the manager's namespace too.
func managedManager(f *Facts, found func(hit)) {
	cfg, _ := f.kueueSettings()
	if !f.managesNamespace(cfg, f.at(managerPart).Namespace) {
		return
	}
	var effects []string
	if slices.Contains(cfg.Integrations.Frameworks, "pod") {
		effects = append(effects, "New pods of the manager wait for quota, and may never start.")
	}
	if slices.Contains(cfg.Integrations.Frameworks, "batch/job") {
		effects = append(effects, "The Job that frees TrainJobs before an uninstall waits for quota, and helm uninstall fails.")
	}
	if len(effects) > 0 {
		found(hit{values: []any{"effects", strings.Join(effects, " ")}})
	}
}

// managesNamespace reports whether Kueue manages jobs without a queue in a namespace.
func (f *Facts) managesNamespace(cfg *configapi.Configuration, name string) bool {
	selector, _ := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector) // Who decoded it has looked.
	selected, _ := f.selected(selector, name)
	return cfg.ManageJobsWithoutQueueName && selected
}

// selected reports whether a selector takes a namespace, and whether the namespace is there.
func (f *Facts) selected(selector labels.Selector, name string) (selected, known bool) {
	namespace := inventory.Find(f.Namespaces, "", name)
	return namespace != nil && selector.Matches(labels.Set(namespace.Labels)), namespace != nil
}

// leftOut reports whether Kueue is known to leave a namespace alone: then so does everybody.
func (f *Facts) leftOut(namespace string) bool {
	_, settings, err := f.settingsInForce()
	if err != nil {
		return false
	}
	selected, known := f.selected(settings.NamespaceSelector(), namespace)
	return known && !selected
}

// unmanagedQueues finds namespaces with queues that Kueue leaves alone.
func unmanagedQueues(f *Facts, found func(hit)) {
	_, settings, _ := f.settingsInForce()
	effect := ""
	if pod, _ := kueueconfig.Behind(f.configMap(kueuePart), f.Pods, f.Now); pod != nil {
		effect = "When Kueue is restarted, its TrainJobs run at once, outside of all quotas, whatever queue they name."
	}
	seen := map[string]bool{}
	for _, queue := range f.LocalQueues {
		if selected, known := f.selected(settings.NamespaceSelector(), queue.Namespace); selected || !known || seen[queue.Namespace] {
			continue
		}
		seen[queue.Namespace] = true
		h := about("Namespace", "", queue.Namespace, "queue", queue.Name, "selector", metav1.FormatLabelSelector(settings.ManagedJobsNamespaceSelector),
			"label", cmp.Or(settings.LabelCommand(queue.Namespace), fmt.Sprintf("kubectl -n %s delete localqueue %s", queue.Namespace, queue.Name)))
		h.Effect = effect
		found(h)
	}
}
