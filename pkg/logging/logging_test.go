// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// secret is an environment variable's value in every object of these tests.
const secret = "s3cret: of a [user]"

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "node", Env: []corev1.EnvVar{{Name: "TOKEN", Value: secret}},
	}}}}
}

func invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "llm-node-0", field.ErrorList(errs))
}

func TestSetDefault(t *testing.T) {
	var out bytes.Buffer
	SetDefault(New(zap.WriteTo(&out)))
	t.Cleanup(func() { SetDefault(logr.Discard()) })
	log.Print("http: TLS handshake error from 127.0.0.1:1: remote error")
	klog.Info("of client-go")
	var messages []string
	for line := range bytes.Lines(out.Bytes()) {
		messages = append(messages, expect.FromJSON[struct{ Msg string }](t, string(line)).Msg)
	}
	want := []string{"http: TLS handshake error from 127.0.0.1:1: remote error", "of client-go"}
	expect.Same(t, "Unexpected lines", want, messages)
}

func TestDiscreet(t *testing.T) {
	env := field.NewPath("spec", "env").Index(0).Child("value")
	expect.Rows(t, map[string]expect.Row[error, string]{
		"a pod template that cannot change": {In: invalid(field.Invalid(field.NewPath("spec", "template"), template(), "field is immutable")),
			Want: `Job.batch "llm-node-0" is invalid: spec.template: Invalid value: (left out): field is immutable`},
		"a pod template that is wrong": {In: invalid(field.Invalid(field.NewPath("spec", "template"), template(), "must not be: so")),
			Want: `Job.batch "llm-node-0" is invalid: spec.template: Invalid value: (left out)`},
		"a value, and other fields": {In: invalid(field.Invalid(env, secret+`"quoted"`, "must be short"), field.Forbidden(field.NewPath("spec", "suspend"), "no")),
			Want: `Job.batch "llm-node-0" is invalid: [spec.env[0].value: Invalid value: (left out): must be short, spec.suspend: Forbidden: no]`},
		"one of a list":     {In: invalid(field.NotSupported(env, secret, []string{"a"})), Want: `Job.batch "llm-node-0" is invalid: spec.env[0].value: Unsupported value: (left out): supported values: "a"`},
		"one that is twice": {In: invalid(field.Duplicate(env, secret)), Want: `Job.batch "llm-node-0" is invalid: spec.env[0].value: Duplicate value: (left out)`},
		"no value at all":   {In: errors.New(`admission webhook "a" denied the request: no`), Want: `admission webhook "a" denied the request: no`},
	}, func(t *testing.T, tc expect.Row[error, string]) {
		expect.Same(t, "Unexpected text", tc.Want, Discreet(tc.In.Error()))
		// Events are cut at some length.
		for cut := range tc.In.Error() {
			got := Discreet(tc.In.Error()[:cut])
			expect.That(t, !strings.Contains(got, "s3cret") && !strings.Contains(got, "user"), "Cut at %d, it is %s", cut, got)
		}
	})
}

// Whichever way a text gets into a line, and in both formats, values of fields do not.
func TestNoValueIsLogged(t *testing.T) {
	refused := fmt.Errorf("placing child Job: %w", invalid(field.Invalid(field.NewPath("spec", "template"), template(), "field is immutable")))
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			options := zap.Options{DestWriter: &out}
			options.BindFlags(flags)
			expect.NoError(t, flags.Parse([]string{"--zap-encoder=" + format}))
			log := New(zap.UseFlagOptions(&options)).WithName("manager")
			log.Error(refused, "Could not place a child Job")
			log.Info("Refused", "detail", refused.Error())
			log.WithValues("cause", refused).Info("Refused", "error", refused)
			expect.That(t, strings.Count(out.String(), "field is immutable") >= 4, "Not all of 4 errors are there:\n%s", out.String())
			expect.That(t, !strings.Contains(out.String(), "s3cret"), "The value is logged:\n%s", out.String())
		})
	}
}

// From level 8 on, client-go logs the bodies of Secrets.
func TestBodiesAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	options := zap.Options{DestWriter: &out}
	options.BindFlags(flags)
	expect.NoError(t, flags.Parse([]string{"--zap-log-level=10"}))
	log := New(zap.UseFlagOptions(&options)).WithName("manager").WithValues("controller", "trainjob")
	for level, want := range map[int]bool{0: true, 7: true, 8: false, 9: false, 10: false} {
		out.Reset()
		log.V(level).Info("Response Body")
		told := out.Len() > 0
		expect.That(t, log.V(level).Enabled() == want && told == want, "Level %d is enabled: %t, and told: %t; want %t", level, log.V(level).Enabled(), told, want)
	}
}

func TestForController(t *testing.T) {
	var out bytes.Buffer
	of := ForController(New(zap.WriteTo(&out)), "trainjob", "trainJob")
	of(nil).Info("Started")
	of(&reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "llm"}}).Info("Looked")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	expect.Same(t, "Unexpected number of lines", 2, len(lines))
	looked := expect.FromJSON[struct {
		Controller string
		TrainJob   types.NamespacedName
	}](t, lines[1])
	expect.That(t, looked.Controller == "trainjob" && looked.TrainJob.String() == "team/llm", "The line is %s", lines[1])
}
