// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

const configMapLong = `Print the ConfigMap of Kueue's or kueue-trainer's configuration as it should be.

Of Kueue's, TrainJob goes into integrations.externalFrameworks and out of
integrations.frameworks, with --without-jobsets JobSet as well; where there are workers of
MultiKueue, into multiKueue.externalFrameworks, too; where Kueue manages jobs
without a queue, managedJobsNamespaceSelector loses kueue-trainer's namespace. Of kueue-trainer's, settings that Kueue has too go, so that Kueue's
hold; feature gates stay that Kueue has from a flag. Everything else stays, comments too. Nothing is changed in the cluster:
look at the output with "kubectl diff -f -", apply it with "kubectl replace -f -" and
restart the manager.`

const configMapExample = `  # See what would change, and then change it
  kubectl trainjob doctor configmap kueue | kubectl diff -f -
  kubectl trainjob doctor configmap kueue | kubectl replace -f -`

func newConfigMapCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	names := []string{"kueue", "kueue-trainer"}
	var withoutJobSets bool
	cmd := &cobra.Command{
		Use:       "configmap kueue|kueue-trainer",
		Short:     "Print the configuration of Kueue or kueue-trainer as it should be",
		Long:      configMapLong,
		Example:   configMapExample,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Client()
			if err != nil {
				return err
			}
			l := &loader{client: c, facts: &Facts{Unread: map[Kind]error{}}}
			l.installation(cmd.Context())
			if err := l.facts.Unread[configMaps]; err != nil {
				return err
			}
			list(cmd.Context(), l, namespaceKind, &corev1.NamespaceList{}, func(list *corev1.NamespaceList) { l.facts.Namespaces = list.Items })
			list(cmd.Context(), l, workerClusters, &kueue.MultiKueueClusterList{}, func(list *kueue.MultiKueueClusterList) { l.facts.MultiKueueClusters = list.Items })
			if args[0] != names[0] {
				return printConfigMap(streams.Out, l.facts, managerPart, l.facts.likeKueue)
			}
			return printConfigMap(streams.Out, l.facts, kueuePart, func(config *yaml.Node) error {
				return l.facts.besideManager(config, withoutJobSets)
			})
		},
	}
	cmd.Flags().BoolVar(&withoutJobSets, "without-jobsets", false, "Take JobSet out of Kueue's frameworks, where nobody queues JobSets without a TrainJob.")
	return cmd
}

// printConfigMap prints the ConfigMap of a part as change leaves its configuration.
func printConfigMap(out io.Writer, f *Facts, p *part, change func(*yaml.Node) error) error {
	cm := f.configMap(p)
	if cm == nil {
		return errors.New(f.withoutConfigMap(p))
	}
	changed, err := edited(cm.Data[p.configKey], change)
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s, %s: %w", cm.Namespace, cm.Name, p.configKey, err)
	}
	result := corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cm.Namespace, Name: cm.Name, Labels: cm.Labels, Annotations: cm.Annotations,
			// Somebody else's change in between is noticed.
			ResourceVersion: cm.ResourceVersion,
		},
		Data: cm.Data,
	}
	result.Data[p.configKey] = changed
	data, err := sigsyaml.Marshal(result)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// edited changes a YAML document and keeps its comments.
func edited(document string, change func(*yaml.Node) error) (string, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(document), &root); err != nil {
		return "", err
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return "", errors.New("it is no YAML mapping")
	}
	if err := change(root.Content[0]); err != nil {
		return "", err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	// As Kueue's own file has it.
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(&root); err != nil {
		return "", err
	}
	return out.String(), encoder.Close()
}

// besideManager changes Kueue's configuration to that of a Kueue with kueue-trainer.
func (f *Facts) besideManager(config *yaml.Node, withoutJobSets bool) error {
	removed := []string{inTreeFramework}
	if withoutJobSets {
		removed = append(removed, jobSetFramework)
	}
	trainJobExternal(config, removed)
	if len(f.MultiKueueClusters) > 0 {
		if err := trainJobDispatched(config); err != nil {
			return err
		}
	}
	cfg, err := f.kueueSettings()
	if err != nil || !f.managesNamespace(cfg, managerPart.namespace) {
		return nil // with a configuration that Kueue refuses, the lists are what can be put right
	}
	return leaveOut(config, cfg.ManagedJobsNamespaceSelector, managerPart.namespace)
}

// trainJobExternal puts TrainJob into the one list of Kueue's configuration where it belongs,
// and takes frameworks out of the other.
func trainJobExternal(config *yaml.Node, removed []string) {
	integrations := child(config, "integrations", yaml.MappingNode)
	frameworks := child(integrations, "frameworks", yaml.SequenceNode)
	frameworks.Content = slices.DeleteFunc(frameworks.Content, func(item *yaml.Node) bool { return slices.Contains(removed, item.Value) })
	if len(frameworks.Content) == 0 {
		remove(integrations, "frameworks")
	}
	external := child(integrations, "externalFrameworks", yaml.SequenceNode)
	if !slices.ContainsFunc(external.Content, func(item *yaml.Node) bool { return item.Value == externalFramework }) {
		external.Content = append(external.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: externalFramework})
	}
}

// trainJobDispatched has Kueue's configuration hand TrainJobs to workers.
func trainJobDispatched(config *yaml.Node) error {
	external := child(child(config, "multiKueue", yaml.MappingNode), "externalFrameworks", yaml.SequenceNode)
	listed := func(item *yaml.Node) bool {
		i := index(item, "name")
		return i >= 0 && item.Content[i+1].Value == externalFramework
	}
	if slices.ContainsFunc(external.Content, listed) {
		return nil
	}
	var item yaml.Node
	if err := item.Encode(map[string]string{"name": externalFramework}); err != nil {
		return err
	}
	external.Content = append(external.Content, &item)
	return nil
}

// leaveOut takes a namespace out of managedJobsNamespaceSelector, which is written down with
// Kueue's default first where it is not there.
func leaveOut(config *yaml.Node, defaulted *metav1.LabelSelector, namespace string) error {
	const field = "managedJobsNamespaceSelector"
	if index(config, field) < 0 {
		if err := set(config, field, defaulted); err != nil {
			return err
		}
	}
	expressions := child(child(config, field, yaml.MappingNode), "matchExpressions", yaml.SequenceNode)
	var expression yaml.Node
	if err := expression.Encode(map[string]any{"key": corev1.LabelMetadataName, "operator": "NotIn", "values": []string{namespace}}); err != nil {
		return err
	}
	expressions.Content = append(expressions.Content, &expression)
	return nil
}

// overrides are the settings of Kueue's that the manager's configuration can have as well.
var overrides = []string{"manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "waitForPodsReady", "integrations", "objectRetentionPolicies", "featureGates"}

// likeKueue takes out of the manager's configuration what overrides Kueue's. Gates that Kueue
// has from a flag are in no ConfigMap, and the manager has to be told of them.
func (f *Facts) likeKueue(config *yaml.Node) error {
	if _, err := f.kueueSettings(); err != nil {
		return err
	}
	for _, setting := range overrides {
		remove(config, setting)
	}
	gates := f.gatesOfFlags()
	if len(gates) == 0 {
		return nil
	}
	return set(config, "featureGates", gates)
}

// valuesLikeKueue are likeKueue for a release, whose values Helm merges: it takes out what is nil.
func (f *Facts) valuesLikeKueue() map[string]any {
	var config map[string]any
	if yaml.Unmarshal([]byte(f.configMap(managerPart).Data[managerPart.configKey]), &config) != nil {
		return nil
	}
	values := map[string]any{}
	for _, setting := range overrides {
		if _, found := config[setting]; found {
			values[setting] = nil
		}
	}
	if gates := f.gatesOfFlags(); len(gates) > 0 {
		kueues, _, _ := f.settingsInForce()
		named, _ := config["featureGates"].(map[string]any)
		for name := range named {
			gates[name] = kueues.FeatureGates[name]
		}
		values["featureGates"] = gates
	}
	return values
}

// gatesOfFlags are those that the manager has to be told of.
func (f *Facts) gatesOfFlags() map[string]bool {
	gates := f.kueueGateFlags()
	maps.DeleteFunc(gates, func(name string, _ bool) bool {
		return !kueueconfig.KnowsGate(name) // the manager would refuse it
	})
	return gates
}
