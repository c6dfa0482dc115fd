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
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

const configMapLong = `Print the ConfigMap of Kueue's or kueue-trainer's configuration as it should be.

Of Kueue's, TrainJob goes into integrations.externalFrameworks and out of
integrations.frameworks. Of kueue-trainer's, settings that Kueue has too go, so that Kueue's
hold; feature gates stay that Kueue has from a flag. Everything else stays, comments too. Nothing is changed in the cluster:
look at the output with "kubectl diff -f -", apply it with "kubectl replace -f -" and
restart the manager.`

const configMapExample = `  kubectl trainjob doctor configmap kueue | kubectl diff -f -
  kubectl trainjob doctor configmap kueue | kubectl replace -f -`

func newConfigMapCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	names := []string{"kueue", "kueue-trainer"}
	return &cobra.Command{
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
			return printConfigMap(streams.Out, l.facts, args[0] == names[0])
		},
	}
}

// printConfigMap prints the mended ConfigMap of Kueue or of kueue-trainer.
func printConfigMap(out io.Writer, f *Facts, ofKueue bool) error {
	p, mend := managerPart, func(config *yaml.Node) error { return f.likeKueue(config) }
	if ofKueue {
		p, mend = kueuePart, trainJobExternal
	}
	cm := f.configMap(p)
	if cm == nil {
		return errors.New(f.withoutConfigMap(p))
	}
	mended, err := edited(cm.Data[p.configKey], mend)
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
	result.Data[p.configKey] = mended
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

// trainJobExternal puts TrainJob into the one list of Kueue's configuration where it belongs.
func trainJobExternal(config *yaml.Node) error {
	integrations := child(config, "integrations", yaml.MappingNode)
	frameworks := child(integrations, "frameworks", yaml.SequenceNode)
	frameworks.Content = slices.DeleteFunc(frameworks.Content, func(item *yaml.Node) bool { return item.Value == inTreeFramework })
	if len(frameworks.Content) == 0 {
		remove(integrations, "frameworks")
	}
	external := child(integrations, "externalFrameworks", yaml.SequenceNode)
	if !slices.ContainsFunc(external.Content, func(item *yaml.Node) bool { return item.Value == externalFramework }) {
		external.Content = append(external.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: externalFramework})
	}
	return nil
}

// likeKueue takes out of the manager's configuration what overrides Kueue's. Gates that Kueue
// has from a flag are in no ConfigMap, and the manager has to be told of them.
func (f *Facts) likeKueue(config *yaml.Node) error {
	if _, err := f.kueueSettings(); err != nil {
		return err
	}
	for _, setting := range []string{"manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "waitForPodsReady", "integrations", "objectRetentionPolicies", "featureGates"} {
		remove(config, setting)
	}
	gates := f.kueueGateFlags()
	maps.DeleteFunc(gates, func(name string, _ bool) bool {
		return !kueueconfig.KnowsGate(name) // the manager would refuse it
	})
	if len(gates) == 0 {
		return nil
	}
	return set(config, "featureGates", gates)
}
