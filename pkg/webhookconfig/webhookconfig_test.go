// SPDX-License-Identifier: Apache-2.0

package webhookconfig

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestConditions(t *testing.T) {
	deleting := admissionregistrationv1.MatchCondition{Name: "not-deleting", Expression: "true"}
	scope := admissionregistrationv1.MatchCondition{Name: Queued, Expression: queued}
	notOwn := admissionregistrationv1.MatchCondition{Name: NotOwn, Expression: `request.userInfo.username != "manager"`}
	type list = []admissionregistrationv1.MatchCondition
	type row struct {
		have, want list
		every      bool
		self       string
	}
	expect.Rows(t, map[string]row{
		"only queued TrainJobs":               {have: list{deleting}, want: list{deleting, scope}},
		"every TrainJob":                      {have: list{deleting, scope}, every: true, want: list{deleting}},
		"every one, but of the manager":       {have: list{deleting, scope}, every: true, self: "manager", want: list{deleting, notOwn}},
		"what is there already":               {have: list{deleting, scope, notOwn}, self: "manager", want: list{deleting, scope, notOwn}},
		"what a former version wrote":         {have: list{{Name: Queued, Expression: "old"}, deleting}, want: list{deleting, scope}},
		"a configuration without a condition": {want: list{scope}},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected conditions", tc.want, conditions(tc.have, tc.every, tc.self))
	})
}

// Lists are in no order, and whose LocalQueue it is that matters is news once.
func TestScopeIsToldOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	expect.NoError(t, kueue.AddToScheme(scheme))
	expect.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	webhooks := []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: Installed.Mutating}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: Installed.Validating}},
	}
	lists := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(webhooks...).
		WithObjects(kit.LocalQueue("b", "default", "gpus"), kit.LocalQueue("a", "default", "gpus"), kit.LocalQueue("0", "gpus", "gpus")).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if queues, ok := list.(*kueue.LocalQueueList); ok && lists%2 == 1 {
				slices.Reverse(queues.Items)
			}
			lists++
			return err
		}}).Build()
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	s := &Scope{client: c, kueue: kueueconfig.Fixed(kueueconfig.Settings{})}
	for range 10 {
		expect.Must(s.Reconcile(logr.NewContext(t.Context(), log), reconcile.Request{}))(t)
	}
	expect.Same(t, "The log has", []string{`"level"=0 "msg"="Widened the webhooks to every TrainJob" "detail"="namespace a has a LocalQueue default"`}, lines)
}

// The API server's own code decides which requests reach a webhook.
func TestWhatReachesTheWebhooks(t *testing.T) {
	type object = map[string]any
	job := func(labels, spec object) object {
		metadata := object{"name": "llm", "namespace": "team"}
		if labels != nil {
			metadata["labels"] = labels
		}
		return object{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
	}
	entryOf := func(manager string, jobs ...any) object {
		return object{"runtimePatches": []any{object{"manager": manager, "trainingRuntimeSpec": object{"template": object{"spec": object{"replicatedJobs": jobs}}}}}}
	}
	entry := func(manager string) object { return entryOf(manager, object{"name": "node"}) }
	plain, queue := job(nil, object{}), object{"kueue.x-k8s.io/queue-name": "gpus"}
	type row struct {
		object, old object
		user        string
		want        bool
	}
	expect.Rows(t, map[string]row{
		"a TrainJob without a queue":                                 {object: plain},
		"one with other labels":                                      {object: job(object{"app": "llm"}, object{})},
		"one with somebody's entry":                                  {object: job(nil, entry("example.com/user"))},
		"a change of one without a queue":                            {object: plain, old: plain},
		"one with a queue":                                           {object: job(queue, object{}), want: true},
		"one that gets a queue":                                      {object: job(queue, object{}), old: plain, want: true},
		"one that loses its queue":                                   {object: plain, old: job(queue, object{}), want: true},
		"one with our entry, from a manifest":                        {object: job(nil, entry("kueue.x-k8s.io/manager")), want: true},
		"one with the empty entry that Kueue's own integration adds": {object: job(nil, entryOf("kueue.x-k8s.io/manager"))},
		"one that loses our entry":                                   {object: plain, old: job(nil, entry("kueue.x-k8s.io/manager")), want: true},
		"one with somebody's overrides":                              {object: job(nil, object{"podTemplateOverrides": []any{object{"targetJobs": []any{}}}})},
		"one with our overrides":                                     {object: job(nil, object{"podTemplateOverrides": []any{object{"metadata": object{"annotations": object{"kueue-trainer.dev/manager": "kueue.x-k8s.io/manager"}}}}}), want: true},
		"one without a spec":                                         {object: object{"metadata": object{"name": "llm"}}},
		"a write of the manager":                                     {object: job(queue, object{}), user: `the "manager"`},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected answer whether it reaches the webhook", tc.want, matches(t, conditions(nil, false, `the "manager"`), tc.object, tc.old, tc.user))
	})
}

func matches(t *testing.T, conditions []admissionregistrationv1.MatchCondition, obj, old map[string]any, userName string) bool {
	t.Helper()
	var accessors []cel.ExpressionAccessor
	for i := range conditions {
		c := matchconditions.MatchCondition(conditions[i])
		accessors = append(accessors, &c)
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	evaluator := compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	gvk, gvr := trainjob.GVK, trainjob.GVK.GroupVersion().WithResource("trainjobs")
	attributes := &admission.VersionedAttributes{VersionedKind: gvk, VersionedObject: &unstructured.Unstructured{Object: obj}}
	userName = cmp.Or(userName, "somebody")
	operation := admission.Create
	if old != nil {
		operation, attributes.VersionedOldObject = admission.Update, &unstructured.Unstructured{Object: old}
	}
	attributes.Attributes = admission.NewAttributesRecord(attributes.VersionedObject, attributes.VersionedOldObject, gvk, "team", "llm", gvr, "",
		operation, nil, false, &user.DefaultInfo{Name: userName})
	result := matchconditions.NewMatcher(evaluator, nil, "webhook", "validating", "test").Match(t.Context(), attributes, nil, nil)
	expect.NoError(t, result.Error)
	return result.Matches
}
