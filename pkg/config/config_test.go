// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/config/v1alpha1"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const head = "apiVersion: config.kueue-trainer.dev/v1alpha1\nkind: Configuration\n"

// defaults is what the manager does without a file.
func defaults() *Configuration {
	return &Configuration{
		TypeMeta:  metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		Namespace: "kueue-trainer-system",
		Webhook:   configapi.ControllerWebhook{Port: ptr.To(9443), CertDir: "/tmp/k8s-webhook-server/serving-certs"},
		LeaderElection: &v1alpha1.LeaderElectionConfiguration{
			LeaderElect: ptr.To(true), ResourceLock: "leases", ResourceName: "manager.kueue-trainer.dev", ResourceNamespace: "kueue-trainer-system",
			LeaseDuration: metav1.Duration{Duration: 15 * time.Second}, RenewDeadline: metav1.Duration{Duration: 10 * time.Second}, RetryPeriod: metav1.Duration{Duration: 2 * time.Second},
		},
		Metrics:          Metrics{BindAddress: ":8443", SecureServing: ptr.To(true), LocalQueueLabels: ptr.To(true)},
		Health:           configapi.ControllerHealth{HealthProbeBindAddress: ":8081"},
		Controller:       Controller{GroupKindConcurrency: map[string]int{"TrainJob.trainer.kubeflow.org": 20}},
		ClientConnection: &configapi.ClientConnection{QPS: ptr.To[float32](300), Burst: ptr.To[int32](500)},
		InternalCertManagement: &configapi.InternalCertManagement{
			Enable: ptr.To(true), WebhookServiceName: ptr.To("kueue-trainer-webhook-service"), WebhookSecretName: ptr.To("kueue-trainer-webhook-server-cert"),
		},
		KueueConfigMap: kueueconfig.ConfigMap{Namespace: "kueue-system", Name: "kueue-manager-config", Key: "controller_manager_config.yaml"},
		StartTimeout:   metav1.Duration{Duration: 2 * time.Minute},
		WaitForJobSet:  &metav1.Duration{Duration: 10 * time.Second},
	}
}

func changed(change func(*Configuration)) *Configuration {
	cfg := defaults()
	change(cfg)
	return cfg
}

func fileWith(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "configuration.yaml")
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestLoad(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, *Configuration]{
		"nothing but the head means the defaults": {In: head, Want: defaults()},
		"explicit values stay, their neighbours get defaults": {In: head + `
webhook: {port: 9999}
leaderElection: {leaderElect: false, leaseDuration: 30s}
metrics: {bindAddress: "0", secureServing: false, localQueueLabels: false}
controller: {groupKindConcurrency: {TrainJob.trainer.kubeflow.org: 1}}
clientConnection: {qps: -1}
internalCertManagement: {enable: false}
manageJobsWithoutQueueName: true
integrations: {labelKeysToCopy: [team]}
`,
			Want: changed(func(c *Configuration) {
				c.Webhook.Port = ptr.To(9999)
				c.LeaderElection.LeaderElect = ptr.To(false)
				c.LeaderElection.LeaseDuration.Duration = 30 * time.Second
				c.Metrics = Metrics{BindAddress: "0", SecureServing: ptr.To(false), LocalQueueLabels: ptr.To(false)}
				c.Controller.GroupKindConcurrency[TrainJobKind] = 1
				c.ClientConnection.QPS = ptr.To[float32](-1)
				c.InternalCertManagement.Enable = ptr.To(false)
				c.ManageJobsWithoutQueueName = ptr.To(true)
				c.Integrations.LabelKeysToCopy = []string{"team"}
			})},
		"no wait is not the default one": {In: head + "waitForJobSet: 0s\n", Want: changed(func(c *Configuration) { c.WaitForJobSet.Duration = 0 })},
		"another namespace goes where the namespace counts": {In: head + "namespace: elsewhere\n",
			Want: changed(func(c *Configuration) { c.Namespace, c.LeaderElection.ResourceNamespace = "elsewhere", "elsewhere" })},
		"an empty list of workers is no list": {In: head + "controller: {groupKindConcurrency: {}}\n", Want: defaults()},
		"a value that is Kueue's default is an override, too": {In: head + "manageJobsWithoutQueueName: false\nintegrations: {labelKeysToCopy: []}\nwaitForPodsReady: {}\n",
			Want: changed(func(c *Configuration) {
				c.ManageJobsWithoutQueueName = ptr.To(false)
				c.Integrations.LabelKeysToCopy = []string{}
				c.WaitForPodsReady = &configapi.WaitForPodsReady{}
			})},
		"Kueue's configuration somewhere else": {In: head + "kueueConfigMap: {namespace: openshift-kueue-operator, name: kueue-config}\n",
			Want: changed(func(c *Configuration) {
				c.KueueConfigMap.Namespace, c.KueueConfigMap.Name = "openshift-kueue-operator", "kueue-config"
			})},
		"settings of Kueue's, as Kueue writes them": {In: head + "managedJobsNamespaceSelector: {matchLabels: {team: a}}\nwaitForPodsReady: {timeout: 7m}\n" +
			"objectRetentionPolicies: {workloads: {afterFinished: 1h}}\nfeatureGates: {TopologyAwareScheduling: false}\n",
			Want: changed(func(c *Configuration) {
				c.ManagedJobsNamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
				c.WaitForPodsReady = &configapi.WaitForPodsReady{Timeout: metav1.Duration{Duration: 7 * time.Minute}}
				c.ObjectRetentionPolicies = &configapi.ObjectRetentionPolicies{Workloads: &configapi.WorkloadRetentionPolicy{AfterFinished: &metav1.Duration{Duration: time.Hour}}}
				c.FeatureGates = map[string]bool{"TopologyAwareScheduling": false}
			})},
	}, func(t *testing.T, tc expect.Row[string, *Configuration]) {
		got := expect.Must(Load(fileWith(t, tc.In)))(t)
		expect.Same(t, "Unexpected configuration", tc.Want, got)
		// The effective configuration is logged; what is logged has to be a file.
		expect.Same(t, "It comes back different", got, expect.Must(Load(fileWith(t, string(expect.Must(yaml.Marshal(got))(t)))))(t))
	})
}

func TestLoadGivesTheDefaults(t *testing.T) {
	expect.Rows(t, map[string]string{
		"without a file": "", "by the file that is shipped": filepath.Join("..", "..", "config", "manager", "configuration.yaml"),
	}, func(t *testing.T, path string) {
		expect.Same(t, "Unexpected configuration", defaults(), expect.Must(Load(path))(t))
	})
}

func TestLoadErrors(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, []string]{
		"an empty file":            {In: "", Want: []string{"apiVersion", APIVersion}},
		"no YAML":                  {In: "a: [", Want: []string{"yaml"}},
		"another version":          {In: strings.Replace(head, "v1alpha1", "v1beta1", 1), Want: []string{"apiVersion", "config.kueue-trainer.dev/v1beta1", APIVersion}},
		"Kueue's own file":         {In: "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n", Want: []string{"apiVersion", "config.kueue.x-k8s.io/v1beta2"}},
		"another kind":             {In: strings.Replace(head, "Configuration", "Config", 1), Want: []string{"kind", "Config"}},
		"a field in other letters": {In: head + "NAMESPACE: x\n", Want: []string{"NAMESPACE"}},
		"a second document":        {In: head + "---\nnamespace: x\n", Want: []string{"more than one YAML document"}},
		"an unknown field":         {In: head + "queueVisibility: {}\n", Want: []string{"queueVisibility"}},
		"an unknown field inside":  {In: head + "metrics: {bindAdress: \":1\"}\n", Want: []string{"bindAdress"}},
		"a doubled field":          {In: head + "namespace: a\nnamespace: b\n", Want: []string{"namespace"}},
		"a doubled field inside":   {In: head + "webhook:\n  port: 1\n  port: 2\n", Want: []string{"port"}},
		"a value of another type":  {In: head + "manageJobsWithoutQueueName: maybe\n", Want: []string{"manageJobsWithoutQueueName"}},
		"a duration without unit":  {In: head + "waitForPodsReady: {timeout: five}\n", Want: []string{"five"}},
		"a negative wait":          {In: head + "waitForJobSet: -10s\n", Want: []string{`waitForJobSet: Invalid value: "-10s": must not be negative; 0s has TrainJobs queue without waiting`}},
		"validation errors, all of them": {In: head + "controller: {groupKindConcurrency: {Job.batch: 2}}\nfeatureGates: {Nothing: true}\n",
			Want: []string{"controller.groupKindConcurrency", "Job.batch", "featureGates[Nothing]"}},
	}, func(t *testing.T, tc expect.Row[string, []string]) {
		path := fileWith(t, tc.In)
		cfg, err := Load(path)
		expect.ErrorWith(t, err, append(tc.Want, path)...)
		expect.That(t, cfg == nil, "A configuration beside an error")
	})
}

func TestLoadOfAMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere.yaml")
	_, err := Load(path)
	expect.That(t, errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), path),
		"Load = %v, want an error that names %s and wraps fs.ErrNotExist", err, path)
}

func TestValidate(t *testing.T) {
	selector := func(s metav1.LabelSelector) func(*Configuration) {
		return func(c *Configuration) { c.ManagedJobsNamespaceSelector = &s }
	}
	notIn := func(namespaces ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: namespaces,
		}}}
	}
	workers := func(m map[string]int) func(*Configuration) {
		return func(c *Configuration) { c.Controller.GroupKindConcurrency = m }
	}
	expect.Answers(t, func(in func(*Configuration)) []string { return expect.FieldsAndTypes(validate(changed(in))) }, map[string]expect.Row[func(*Configuration), []string]{
		"the defaults":                     {In: func(*Configuration) {}},
		"no apiVersion":                    {In: func(c *Configuration) { c.APIVersion = "" }, Want: []string{"apiVersion: FieldValueNotSupported"}},
		"no kind":                          {In: func(c *Configuration) { c.Kind = "" }, Want: []string{"kind: FieldValueNotSupported"}},
		"a port that is none":              {In: func(c *Configuration) { c.Webhook.Port = ptr.To(99999) }, Want: []string{"webhook.port: FieldValueInvalid"}},
		"no burst":                         {In: func(c *Configuration) { c.ClientConnection.Burst = ptr.To[int32](-5) }, Want: []string{"clientConnection.burst: FieldValueInvalid"}},
		"no requests":                      {In: func(c *Configuration) { c.ClientConnection.QPS = ptr.To[float32](0) }, Want: []string{"clientConnection.qps: FieldValueInvalid"}},
		"a lease that ends before renewal": {In: func(c *Configuration) { c.LeaderElection.LeaseDuration.Duration = time.Second }, Want: []string{"leaderElection.leaseDuration: FieldValueInvalid"}},
		"no time to start":                 {In: func(c *Configuration) { c.StartTimeout.Duration = -time.Minute }, Want: []string{"startTimeout: FieldValueInvalid"}},
		"no wait":                          {In: func(c *Configuration) { c.WaitForJobSet.Duration = 0 }},
		"less than no wait":                {In: func(c *Configuration) { c.WaitForJobSet.Duration = -1 }, Want: []string{"waitForJobSet: FieldValueInvalid"}},
		"profiles":                         {In: func(c *Configuration) { c.Metrics.Pprof = true }},
		"profiles for everybody":           {In: func(c *Configuration) { c.Metrics.Pprof, c.Metrics.SecureServing = true, ptr.To(false) }, Want: []string{"metrics.pprof: FieldValueForbidden"}},
		"many workers":                     {In: workers(map[string]int{TrainJobKind: 50})},
		"no workers":                       {In: workers(map[string]int{TrainJobKind: 0}), Want: []string{"controller.groupKindConcurrency[TrainJob.trainer.kubeflow.org]: FieldValueInvalid"}},
		"fewer than none":                  {In: workers(map[string]int{TrainJobKind: -1}), Want: []string{"controller.groupKindConcurrency[TrainJob.trainer.kubeflow.org]: FieldValueInvalid"}},
		"workers of another kind":          {In: workers(map[string]int{"Job.batch": 1}), Want: []string{"controller.groupKindConcurrency: FieldValueNotSupported"}},
		"workers of the kind in short":     {In: workers(map[string]int{"TrainJob": 1}), Want: []string{"controller.groupKindConcurrency: FieldValueNotSupported"}},
		"a selector by label":              {In: selector(metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}})},
		"a selector of everything":         {In: selector(metav1.LabelSelector{}), Want: []string{"managedJobsNamespaceSelector: FieldValueInvalid", "managedJobsNamespaceSelector: FieldValueInvalid"}},
		"a selector that has kube-system":  {In: selector(notIn("kueue-system")), Want: []string{"managedJobsNamespaceSelector: FieldValueInvalid"}},
		"a selector that has kueue-system": {In: selector(notIn("kube-system")), Want: []string{"managedJobsNamespaceSelector: FieldValueInvalid"}},
		"a selector that cannot be read": {In: selector(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Like", Values: []string{"v"}}}}),
			Want: []string{"managedJobsNamespaceSelector.matchExpressions[0].operator: FieldValueInvalid"}},
		"a selector with a bad key": {In: selector(metav1.LabelSelector{MatchLabels: map[string]string{"no key": "v"}}),
			Want: []string{"managedJobsNamespaceSelector.matchLabels: FieldValueInvalid"}},
		"known gates, on and off": {In: func(c *Configuration) {
			c.FeatureGates = map[string]bool{"TopologyAwareScheduling": true, "MultiKueue": false}
		}},
		"an unknown gate, even if off": {In: func(c *Configuration) { c.FeatureGates = map[string]bool{"Nothing": false, "Anything": true} },
			Want: []string{"featureGates[Anything]: FieldValueInvalid", "featureGates[Nothing]: FieldValueInvalid"}},
		"a negative timeout": {In: func(c *Configuration) {
			c.WaitForPodsReady = &configapi.WaitForPodsReady{Timeout: metav1.Duration{Duration: -time.Second}}
		}, Want: []string{"waitForPodsReady.timeout: FieldValueInvalid"}},
	})
}

func TestValidateTolerationRules(t *testing.T) {
	exists := corev1.Toleration{Key: "amd.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	tolerating := func(t corev1.Toleration) []TolerationRule {
		return []TolerationRule{{Resources: []string{"amd.com/gpu"}, Tolerations: []corev1.Toleration{t}}}
	}
	forResource := func(names ...string) []TolerationRule {
		return []TolerationRule{{Resources: names, Tolerations: []corev1.Toleration{exists}}}
	}
	expect.Answers(t, func(in []TolerationRule) []string { return expect.FieldsAndTypes(validateTolerationRules(in)) }, map[string]expect.Row[[]TolerationRule, []string]{
		"no rules":                           {},
		"names and beginnings":               {In: forResource("amd.com/gpu", "gpu.intel.com/*", "habana.ai/gau*")},
		"a value":                            {In: tolerating(corev1.Toleration{Key: "sku", Value: "gpu"})},
		"seconds":                            {In: tolerating(corev1.Toleration{Key: "sku", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To[int64](5)})},
		"an empty rule":                      {In: []TolerationRule{{}}, Want: []string{"tolerationRules[0].resources: FieldValueRequired", "tolerationRules[0].tolerations: FieldValueRequired"}},
		"everything":                         {In: forResource("*"), Want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"a resource that every pod asks for": {In: forResource("cpu"), Want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"a star in the middle":               {In: forResource("amd.com/*gpu"), Want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"a name that is none":                {In: forResource("amd.com/g p u"), Want: []string{"tolerationRules[0].resources[0]: FieldValueInvalid"}},
		"no key":                             {In: tolerating(corev1.Toleration{Operator: "Exists"}), Want: []string{"tolerationRules[0].tolerations[0].key: FieldValueRequired"}},
		"a value that may be anything":       {In: tolerating(corev1.Toleration{Key: "sku", Operator: "Exists", Value: "gpu"}), Want: []string{"tolerationRules[0].tolerations[0].value: FieldValueInvalid"}},
		"a value that is none":               {In: tolerating(corev1.Toleration{Key: "sku", Value: "g p u"}), Want: []string{"tolerationRules[0].tolerations[0].value: FieldValueInvalid"}},
		"an unknown operator":                {In: tolerating(corev1.Toleration{Key: "sku", Operator: "Like"}), Want: []string{"tolerationRules[0].tolerations[0].operator: FieldValueNotSupported"}},
		"an unknown effect":                  {In: tolerating(corev1.Toleration{Key: "sku", Effect: "Never"}), Want: []string{"tolerationRules[0].tolerations[0].effect: FieldValueNotSupported"}},
		"seconds without NoExecute":          {In: tolerating(corev1.Toleration{Key: "sku", TolerationSeconds: ptr.To[int64](5)}), Want: []string{"tolerationRules[0].tolerations[0].effect: FieldValueInvalid"}},
	})
}

// The chart refuses what the manager would not start with, and takes all else but what is its own.
func TestChartKnowsTheFields(t *testing.T) {
	data, err := os.ReadFile("../../charts/kueue-trainer/values.schema.json")
	expect.NoError(t, err)
	type object struct {
		Properties map[string]object
	}
	var schema object
	expect.NoError(t, json.Unmarshal(data, &schema))
	names := func(of reflect.Type, without ...string) sets.Set[string] {
		fields := sets.New[string]()
		for _, field := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				fields.Insert(name)
			}
		}
		return fields.Delete(without...)
	}
	of := schema.Properties["configuration"].Properties
	for _, tc := range []struct {
		field     string
		inChart   map[string]object
		inManager sets.Set[string]
	}{
		{"configuration", of, names(reflect.TypeFor[Configuration](), "apiVersion", "kind", "namespace", "webhook", "health", "internalCertManagement", "kueueConfigMap")},
		{"metrics", of["metrics"].Properties, names(reflect.TypeFor[Metrics](), "bindAddress", "secureServing")},
		{"controller", of["controller"].Properties, names(reflect.TypeFor[Controller]())},
		{"clientConnection", of["clientConnection"].Properties, names(reflect.TypeFor[configapi.ClientConnection]())},
		{"integrations", of["integrations"].Properties, names(reflect.TypeFor[kueueconfig.Integrations]())},
		{"leaderElection", of["leaderElection"].Properties, names(reflect.TypeFor[v1alpha1.LeaderElectionConfiguration](),
			"leaderElect", "resourceLock", "resourceName", "resourceNamespace")},
	} {
		expect.Same(t, "fields of "+tc.field, sets.List(tc.inManager), sets.List(sets.KeySet(tc.inChart)))
	}
}
