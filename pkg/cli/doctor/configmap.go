// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
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
		Use: "configmap kueue|kueue-trainer", Short: "Print the configuration of Kueue or kueue-trainer as it should be",
		Long: configMapLong, Example: configMapExample, Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Client()
			if err != nil {
				return err
			}
			l := newLoader(c, time.Now())
			l.installation(cmd.Context())
			if err := l.facts.Unread[configMaps]; err != nil {
				return err
			}
			list(cmd.Context(), l, namespaceKind, &l.facts.Namespaces)
			list(cmd.Context(), l, workerClusters, &l.facts.MultiKueueClusters)
			if args[0] != names[0] {
				return printConfigMap(streams.Out, l.facts, managerPart, l.facts.likeKueue)
			}
			return printConfigMap(streams.Out, l.facts, kueuePart, func(config *kyaml.RNode) error {
				return l.facts.besideManager(config, withoutJobSets)
			})
		},
	}
	cmd.Flags().BoolVar(&withoutJobSets, "without-jobsets", false, "Take JobSet out of Kueue's frameworks, where nobody queues JobSets without a TrainJob.")
	return cmd
}

// printConfigMap prints the ConfigMap of a part as change leaves its configuration.
func printConfigMap(out io.Writer, f *Facts, p *part, change func(*kyaml.RNode) error) error {
	cm, key := f.configMap(p), f.at(p).configKey
	if cm == nil {
		return f.withoutConfigMap(p)
	}
	changed, err := edited(cm.Data[key], change)
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s, %s: %w", cm.Namespace, cm.Name, key, err)
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
	result.Data[key] = changed
	return show.Encode(out, show.YAML, result)
}

// edited changes a YAML document and keeps its comments.
func edited(document string, change func(*kyaml.RNode) error) (string, error) {
	root, err := kyaml.Parse(document)
	if err != nil {
		return "", err
	}
	if root.YNode().Kind != kyaml.MappingNode {
		return "", errors.New("it is no YAML mapping")
	}
	if err := change(root); err != nil {
		return "", err
	}
	return root.String()
}

// besideManager makes Kueue's configuration that of a Kueue with kueue-trainer; of one that it refuses, the lists alone.
func (f *Facts) besideManager(config *kyaml.RNode, withoutJobSets bool) error {
	removed := []string{inTreeFramework}
	if withoutJobSets {
		removed = append(removed, jobSetFramework)
	}
	err := errors.Join(without(config, removed, "integrations", "frameworks"), including(config, externalFramework, "integrations", "externalFrameworks"))
	if len(f.MultiKueueClusters) > 0 {
		err = errors.Join(err, including(config, "name: "+externalFramework, "multiKueue", "externalFrameworks"))
	}
	namespace := f.at(managerPart).Namespace
	cfg, unread := f.kueueSettings()
	if err != nil || unread != nil || !f.managesNamespace(cfg, namespace) {
		return err
	}
	const selector = "managedJobsNamespaceSelector"
	if config.Field(selector) == nil { // It is Kueue's default, then.
		err = set(config, selector, cfg.ManagedJobsNamespaceSelector)
	}
	expression := fmt.Sprintf("key: %s\noperator: NotIn\nvalues:\n- %s\n", corev1.LabelMetadataName, namespace)
	return errors.Join(err, including(config, expression, selector, "matchExpressions"))
}

// without takes names out of a list, which goes with the last of them.
func without(config *kyaml.RNode, names []string, path ...string) error {
	found, err := config.Pipe(kyaml.Lookup(path...))
	if err != nil || found == nil {
		return err
	}
	list := found.YNode()
	list.Content = slices.DeleteFunc(list.Content, func(item *kyaml.Node) bool { return slices.Contains(names, item.Value) })
	if len(list.Content) > 0 {
		return nil
	}
	last := len(path) - 1
	return config.PipeE(kyaml.Lookup(path[:last]...), kyaml.Clear(path[last]))
}

// including adds an element to a list that has it not.
func including(config *kyaml.RNode, element string, path ...string) error {
	list, err := config.Pipe(kyaml.LookupCreate(kyaml.SequenceNode, path...))
	if err != nil {
		return err
	}
	added := kyaml.MustParse(element).YNode()
	if slices.ContainsFunc(list.Content(), func(item *kyaml.Node) bool { return equality.Semantic.DeepEqual(decoded(item), decoded(added)) }) {
		return nil
	}
	return list.PipeE(kyaml.Append(added))
}

// decoded is a node without its comments.
func decoded(node *kyaml.Node) (value any) {
	_ = node.Decode(&value) // What cannot be decoded is no element that is added here.
	return value
}

// set puts an API value under a key, with the names it has in the API; nil takes the key away.
func set(config *kyaml.RNode, key string, value any) error {
	if value == nil {
		return config.PipeE(kyaml.Clear(key))
	}
	data, err := sigsyaml.Marshal(value)
	if err != nil {
		return err
	}
	node, err := kyaml.Parse(string(data))
	if err != nil {
		return err
	}
	return config.PipeE(kyaml.SetField(key, node))
}

// likeKueue has the manager's configuration override nothing of Kueue's.
func (f *Facts) likeKueue(config *kyaml.RNode) error {
	if _, err := f.kueueSettings(); err != nil {
		return err
	}
	var failures error
	for setting, value := range f.overrides() {
		failures = errors.Join(failures, set(config, setting, value))
	}
	return failures
}

// overrides are the settings of Kueue's that the manager's configuration can have as well, and has not where it is to go by
// Kueue's, but for gates that Kueue has from a flag: these are in no ConfigMap, and the manager has to be told of them.
func (f *Facts) overrides() map[string]any {
	settings := map[string]any{
		"manageJobsWithoutQueueName": nil, "managedJobsNamespaceSelector": nil, "waitForPodsReady": nil, "integrations": nil, "objectRetentionPolicies": nil, "featureGates": nil,
	}
	gates := f.kueueGateFlags()
	maps.DeleteFunc(gates, func(name string, _ bool) bool {
		return !kueueconfig.KnowsGate(name) // the manager would refuse it
	})
	if len(gates) > 0 {
		settings["featureGates"] = gates
	}
	return settings
}

// valuesLikeKueue are likeKueue for a release, whose values Helm merges: it takes out what is nil.
func (f *Facts) valuesLikeKueue() map[string]any {
	var config map[string]any
	if sigsyaml.Unmarshal([]byte(f.configMap(managerPart).Data[managerPart.configKey]), &config) != nil {
		return nil
	}
	values := f.overrides()
	maps.DeleteFunc(values, func(setting string, value any) bool { return value == nil && config[setting] == nil })
	if gates, isSet := values["featureGates"].(map[string]bool); isSet {
		kueues, _, _ := f.settingsInForce()
		named, _ := config["featureGates"].(map[string]any)
		for name := range named {
			gates[name] = kueues.FeatureGates[name]
		}
	}
	return values
}
