// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// request is one of somebody who has every right in the namespace, and beyond that those that it names.
type request struct {
	policy string
	// old and now are the object before and after, as YAML: without old it is created, without now deleted.
	old, now string
	// options are those of a deletion, params what the policy looks at beside the object.
	options, params string
	subresource     string
	// may are rights in all namespaces, as "update trainjobs/status".
	may []string
	// refused is a part of what the policy says; empty: it lets the request pass.
	refused string
}

// The API server's own code evaluates the expressions. What is not in reach of a few lines is in test/e2e.
func TestExpressions(t *testing.T) {
	const (
		controlled = `ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: llm, uid: a, controller: true}]`
		ofJobSet   = `ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: llm, uid: js, controller: true}]`
		madeUp     = `ownerReferences: [{apiVersion: example.com/v1, kind: X, name: x, uid: x, controller: true}]`
		queued     = `labels: {kueue.x-k8s.io/queue-name: q}`
		placed     = `labels: {kueue.x-k8s.io/podset: node, jobset.sigs.k8s.io/jobset-name: llm}`
		marked     = `labels: {kueue-trainer.dev/gated: "true", jobset.sigs.k8s.io/jobset-name: llm}`
		gate       = `schedulingGates: [{name: kueue-trainer.dev/admission}]`
		entry      = `runtimePatches: [{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node}]}}}}]`
		placement  = `runtimePatches: [{manager: kueue.x-k8s.io/manager, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: node}}}}}}]}}}}]`
		override   = `podTemplateOverrides: [{targetJobs: [{name: node}], metadata: {annotations: {kueue-trainer.dev/manager: kueue.x-k8s.io/manager}}}]`
		stopping   = `podTemplateOverrides: [{targetJobs: [{name: node}], metadata: {labels: {kueue.x-k8s.io/podset: node}, annotations: {kueue-trainer.dev/manager: kueue.x-k8s.io/manager}}}]`
		orphans    = `{propagationPolicy: Orphan}`
	)
	trainJob := func(metadata, spec string) string {
		return `{metadata: {name: llm, ` + metadata + `}, spec: {` + spec + `}}`
	}
	jobSet := func(metadata, spec, status string) string {
		return `{metadata: {name: llm, ` + metadata + `}, spec: {` + spec + `replicatedJobs: [{name: node, template: {spec: {template: {metadata: {labels: {kueue.x-k8s.io/podset: node}}}}}}]}, status: {` + status + `}}`
	}
	job := func(metadata, spec, status string) string {
		return `{metadata: {name: llm-node-0, ` + ofJobSet + `, ` + metadata + `}, spec: {` + spec + `template: {metadata: {labels: {kueue.x-k8s.io/podset: node}}}}, status: {` + status + `}}`
	}
	pod := func(metadata, spec, status string) string {
		return `{metadata: {name: llm-node-0-0-x7k2p, ` + metadata + `}, spec: {containers: [{name: node, image: i}], ` + spec + `}, status: {` + status + `}}`
	}
	workload := func(metadata, spec, status string) string {
		return `{metadata: {name: wl, ` + metadata + `}, spec: {queueName: q, ` + spec + `}, status: {` + status + `}}`
	}
	const held = controlled + `, finalizers: [kueue.x-k8s.io/resource-in-use]`
	const reserved = `conditions: [{type: QuotaReserved, status: "True"}]`
	const evicted = `conditions: [{type: QuotaReserved, status: "True"}, {type: Evicted, status: "True"}]`
	const deactivating = `conditions: [{type: QuotaReserved, status: "True"}, {type: DeactivationTarget, status: "True"}]`
	full := `, managedFields: [{manager: x, operation: Apply, fieldsV1: {f: ` + strings.Repeat("a", 300_000) + `}}]`
	const left = `labels: {kueue-trainer.dev/remainder-of: llm}`
	is := func(condition string) string { return `{type: ` + condition + `, status: "True"}` }
	runtime := func(container string) string {
		return `{metadata: {name: own}, spec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{` + container + `}]}}}}}]}}}}`
	}
	uses := func(name, spec, conditions string) string {
		return `{metadata: {name: llm}, spec: {` + spec + `runtimeRef: {kind: TrainingRuntime, name: ` + name + `}}, status: {conditions: [` + conditions + `]}}`
	}
	claims := func(owner, conditions string) string {
		return `{metadata: {name: wl, ` + owner + `}, spec: {podSets: [{name: node, template: {spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: own}]}}}]}, status: {conditions: [` + conditions + `]}}`
	}
	bound := func(status string) string {
		return pod(placed, `nodeName: n, terminationGracePeriodSeconds: 30`, status)
	}
	ready := `phase: Running, conditions: [` + is("Ready") + `]`

	labelled := func(labels int, more string) string {
		text := `labels: {kueue.x-k8s.io/queue-name: q` + more
		for i := range labels {
			text += fmt.Sprintf(", l%d: a", i)
		}
		return text + `}`
	}
	const copied = `, kueue.x-k8s.io/multikueue-origin: m`

	compiled := map[string]validating.Validator{}
	for _, policy := range decoded(t) {
		compiled[policy.Name] = validator(t, &policy)
	}
	expect.Rows(t, map[string]request{
		"a queued TrainJob is orphaned":                           {policy: "trainjobs", old: trainJob(queued, ``), options: orphans, refused: "when it is orphaned"},
		"one that our entry alone says is queued":                 {policy: "trainjobs", old: trainJob(``, entry), options: orphans, refused: "when it is orphaned"},
		"one that our override alone says is queued":              {policy: "trainjobs", old: trainJob(``, override), options: orphans, refused: "when it is orphaned"},
		"one without a queue is orphaned":                         {policy: "trainjobs", old: trainJob(``, ``), options: orphans},
		"one with the finalizer is deleted by a plain delete":     {policy: "trainjobs", old: trainJob(queued+`, finalizers: [orphan]`, ``), refused: "when it is orphaned"},
		"the same with a policy, which goes before the finalizer": {policy: "trainjobs", old: trainJob(queued+`, finalizers: [orphan]`, ``), options: `{propagationPolicy: Background}`},
		"one has as many labels as it may":                        {policy: "trainjobs", now: trainJob(labelled(63, ``), ``)},
		"one has more":                                            {policy: "trainjobs", now: trainJob(labelled(64, ``), ``), refused: "it takes 64 labels"},
		"a copy has what MultiKueue adds":                         {policy: "trainjobs", now: trainJob(labelled(63, copied+`, kueue.x-k8s.io/prebuilt-workload-name: w`), ``)},
		"somebody takes one for a copy":                           {policy: "trainjobs", now: trainJob(labelled(67, copied), ``), refused: "it takes 64 labels"},
		"one that runs gets what it did not have":                 {policy: "trainjobs", old: trainJob(queued, ``), now: trainJob(queued, `initializer: {}`), refused: "only spec.suspend may change"},
		"one that runs loses what it had":                         {policy: "trainjobs", old: trainJob(queued, `initializer: {}`), now: trainJob(queued, ``), refused: "only spec.suspend may change"},
		"one that runs is stopped as it changes":                  {policy: "trainjobs", old: trainJob(queued, ``), now: trainJob(queued, `suspend: true, initializer: {}`)},
		"one that stops on Trainer 2.1 changes":                   {policy: "trainjobs", old: trainJob(queued, `suspend: true, `+stopping), now: trainJob(queued, `suspend: true, activeDeadlineSeconds: 1, `+stopping), refused: "its last pod is gone"},
		"one that stops changes":                                  {policy: "trainjobs", old: trainJob(queued, `suspend: true, `+placement), now: trainJob(queued, `suspend: true, activeDeadlineSeconds: 1, `+placement), refused: "its last pod is gone"},
		"one that runs is stopped":                                {policy: "trainjobs", old: trainJob(queued, placement), now: trainJob(queued, `suspend: true, `+placement)},
		"one that waits changes":                                  {policy: "trainjobs", old: trainJob(queued, `suspend: true, `+override), now: trainJob(queued, `suspend: true, activeDeadlineSeconds: 1, `+override)},
		"one that is deleted takes another prebuilt Workload":     {policy: "trainjobs", old: trainJob(queued+`, deletionTimestamp: "2026-01-01T00:00:00Z"`, ``), now: trainJob(`labels: {kueue.x-k8s.io/queue-name: q, kueue.x-k8s.io/prebuilt-workload-name: wl}, deletionTimestamp: "2026-01-01T00:00:00Z"`, ``), refused: "stay as they are"},
		"Kueue's own integration changes one that runs":           {policy: "trainjobs", old: trainJob(queued, ``), now: trainJob(queued, `initializer: {}`), may: []string{"update trainjobs/status"}},
		"whoever may change what is guarded does":                 {policy: "trainjobs", old: trainJob(queued, ``), now: trainJob(queued, `initializer: {}`), may: []string{"update guarded"}},
		"whoever may delete what is guarded changes":              {policy: "trainjobs", old: trainJob(queued, ``), now: trainJob(queued, `initializer: {}`), may: []string{"delete guarded"}, refused: "only spec.suspend may change"},

		"Trainer makes the JobSet of a TrainJob":          {policy: "jobsets", now: jobSet(controlled, ``, ``), may: []string{"update trainjobs/status"}},
		"Trainer takes a JobSet over":                     {policy: "jobsets", old: jobSet(``, ``, ``), now: jobSet(controlled, ``, ``), may: []string{"update trainjobs/status"}, refused: "was not made by Trainer"},
		"JobSet's rights make a JobSet for a TrainJob":    {policy: "jobsets", now: jobSet(controlled, ``, ``), may: []string{"update jobsets/status"}, refused: "was not made by Trainer"},
		"a JobSet of another TrainJob":                    {policy: "jobsets", old: jobSet(controlled, ``, ``), now: jobSet(strings.Replace(controlled, "uid: a", "uid: b", 1), ``, ``), refused: "was not made by Trainer"},
		"a tenant resumes a JobSet":                       {policy: "jobsets", old: jobSet(controlled, `suspend: true, `, ``), now: jobSet(controlled, `suspend: false, `, ``), refused: "only Trainer changes its spec"},
		"a JobSet goes before its pods":                   {policy: "jobsets", old: jobSet(controlled, ``, `replicatedJobsStatus: [{name: a, active: 1}]`), options: `{propagationPolicy: Background}`, refused: "--cascade=foreground"},
		"a JobSet goes of which a part has no pod yet":    {policy: "jobsets", old: jobSet(controlled, ``, `replicatedJobsStatus: [{name: a, active: 1}, {name: b, active: 0}]`), options: `{propagationPolicy: Foreground}`, refused: "just getting their pods"},
		"a JobSet goes of which nobody has counted a pod": {policy: "jobsets", old: jobSet(controlled, ``, ``), options: `{propagationPolicy: Foreground}`, refused: "just getting their pods"},
		"a JobSet goes whose pods run":                    {policy: "jobsets", old: jobSet(controlled, ``, `replicatedJobsStatus: [{name: a, active: 1}]`), options: `{propagationPolicy: Foreground}`},
		"a JobSet goes of which a part is done":           {policy: "jobsets", old: jobSet(controlled, `suspend: true, `, `replicatedJobsStatus: [{name: a, succeeded: 1}]`), options: `{propagationPolicy: Foreground}`, refused: "a part of it is done"},
		"a JobSet that is over goes":                      {policy: "jobsets", old: jobSet(controlled, ``, `terminalState: Failed, replicatedJobsStatus: [{name: a, succeeded: 1}]`), options: `{propagationPolicy: Foreground}`},

		"JobSet resumes a child Job":                               {policy: "jobs", old: job(``, `suspend: true, `, ``), now: job(``, `suspend: false, `, ``), may: []string{"update jobs/status"}},
		"a tenant resumes it":                                      {policy: "jobs", old: job(``, `suspend: true, `, ``), now: job(``, `suspend: false, `, ``), refused: "only JobSet and kueue-trainer make and change it"},
		"a Job becomes a JobSet's":                                 {policy: "jobs", old: `{metadata: {name: j}, spec: {template: {}}}`, now: `{metadata: {name: j, ` + ofJobSet + `}, spec: {template: {}}}`, refused: "only JobSet and kueue-trainer make and change it"},
		"a child Job goes that has no pod yet":                     {policy: "jobs", old: job(``, ``, ``), options: `{propagationPolicy: Foreground}`, refused: "just getting its pods"},
		"a child Job goes whose pod runs":                          {policy: "jobs", old: job(``, ``, `active: 1`), options: `{propagationPolicy: Foreground}`},
		"a child Job goes before its pod":                          {policy: "jobs", old: job(``, ``, `active: 1`), options: `{propagationPolicy: Background}`, refused: "JobSet makes another at once"},
		"a child Job goes by a request that says nothing":          {policy: "jobs", old: job(``, ``, `active: 1`), refused: "when it is orphaned"},
		"a child Job goes that waits":                              {policy: "jobs", old: job(``, `suspend: true, `, ``), options: `{propagationPolicy: Foreground}`},
		"a child Job goes that has failed":                         {policy: "jobs", old: job(``, ``, `failed: 1, conditions: [`+is("Failed")+`]`), options: `{propagationPolicy: Foreground}`, refused: "is finished"},
		"a child Job without a pod that goes is deleted again":     {policy: "jobs", old: job(`finalizers: [foregroundDeletion], deletionTimestamp: "2026-01-01T00:00:00Z"`, ``, ``)},
		"it is to go before its pods by then":                      {policy: "jobs", old: job(`finalizers: [foregroundDeletion], deletionTimestamp: "2026-01-01T00:00:00Z"`, ``, `active: 1`), options: `{orphanDependents: false}`, refused: "JobSet makes another at once"},
		"a child Job that goes in the foreground is deleted again": {policy: "jobs", old: job(`finalizers: [foregroundDeletion], deletionTimestamp: "2026-01-01T00:00:00Z"`, ``, `active: 1`)},

		"a pod loses its gate":                                  {policy: "pods", old: pod(placed, gate, ``), now: pod(placed, ``, ``), refused: "only kueue-trainer takes scheduling gate"},
		"the Job controller takes it away":                      {policy: "pods", old: pod(placed, gate, ``), now: pod(placed, ``, ``), may: []string{"update jobs/status"}, refused: "only kueue-trainer takes scheduling gate"},
		"kueue-trainer does":                                    {policy: "pods", old: pod(placed, gate, ``), now: pod(placed, ``, ``), may: []string{"update guarded"}},
		"a pod loses Kueue's topology gate":                     {policy: "pods", old: pod(placed, `schedulingGates: [{name: kueue.x-k8s.io/topology}]`, ``), now: pod(placed, ``, ``), refused: "only Kueue takes its scheduling gates away"},
		"Kueue takes it away":                                   {policy: "pods", old: pod(placed, `schedulingGates: [{name: kueue.x-k8s.io/topology}]`, ``), now: pod(placed, ``, ``), may: []string{"update pods"}},
		"a pod that runs is resized by whoever labels all pods": {policy: "pods", old: pod(placed, ``, ``), now: pod(placed, ``, ``), subresource: "resize", may: []string{"update pods"}, refused: "it cannot be resized"},
		"a pod that runs gets a label":                          {policy: "pods", old: pod(placed, ``, ``), now: pod(strings.Replace(placed, "{", "{a: b, ", 1), ``, ``), refused: "stay as they are"},
		"a pod that runs gets an owner":                         {policy: "pods", old: pod(placed, ``, ``), now: pod(placed+`, `+ofJobSet, ``, ``), refused: "stay as they are"},
		"a pod that runs tolerates a taint for a time":          {policy: "pods", old: pod(placed, `tolerations: [{key: gpu, operator: Exists, effect: NoExecute}]`, ``), now: pod(placed, `tolerations: [{key: gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 9}]`, ``), refused: "its tolerations"},
		"a pod that runs tolerates one more":                    {policy: "pods", old: pod(placed, ``, ``), now: pod(placed, `tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 9}]`, ``), refused: "its tolerations"},
		"a pod that runs tolerates more than anybody needs":     {policy: "pods", old: pod(placed, ``, ``), now: pod(placed, `tolerations: [`+strings.Repeat(`{operator: Exists}, `, 65)+`]`, ``), refused: "64 tolerations"},
		"a pod that runs tolerates some more for good":          {policy: "pods", old: pod(placed, ``, ``), now: pod(placed, `tolerations: [{operator: Exists}]`, ``)},
		"so does one behind the gate":                           {policy: "pods", old: pod(marked, gate, ``), now: pod(marked, gate+`, tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 9}]`, ``), refused: "its tolerations"},
		"a pod that runs and tolerates is annotated":            {policy: "pods", old: pod(placed, `tolerations: [{operator: Exists}]`, ``), now: pod(placed+`, annotations: {a: b}`, `tolerations: [{operator: Exists}]`, ``)},
		"whoever labels all pods adds a toleration":             {policy: "pods", old: pod(placed, ``, ``), now: pod(placed, `tolerations: [{operator: Exists}]`, ``), may: []string{"update pods"}},
		"a pod behind the gate gets a label":                    {policy: "pods", old: pod(marked, gate, ``), now: pod(strings.Replace(marked, "{", "{a: b, ", 1), gate, ``), refused: "waits for quota: its owner"},
		"somebody makes a pod behind the gate":                  {policy: "pods", now: pod(marked, gate, ``), refused: "nobody would take scheduling gate"},
		"somebody makes a pod like a TrainJob's":                {policy: "pods", now: pod(placed, ``, ``), refused: "would be a queued TrainJob's by its labels"},
		"a pod loses the finalizer by which it is counted":      {policy: "pods", old: pod(placed+`, finalizers: [batch.kubernetes.io/job-tracking]`, ``, ``), now: pod(placed, ``, ``), refused: "takes finalizer"},

		"a pod that is ready has five seconds":            {policy: "pod-deletions", old: bound(ready), options: `{gracePeriodSeconds: 5}`},
		"it has no more":                                  {policy: "pod-deletions", old: bound(ready), options: `{gracePeriodSeconds: 6}`, refused: "--grace-period=5"},
		"it goes with none":                               {policy: "pod-deletions", old: bound(ready), options: `{gracePeriodSeconds: 0}`, refused: "--grace-period=5"},
		"it goes with its own":                            {policy: "pod-deletions", old: bound(ready), refused: "--grace-period=5"},
		"a pod that is not ready has one second":          {policy: "pod-deletions", old: bound(`phase: Running`), options: `{gracePeriodSeconds: 2}`, refused: "--grace-period=1,"},
		"a pod that is not ready any more has one second": {policy: "pod-deletions", old: bound(`phase: Running, conditions: [{type: Ready, status: "False"}]`), options: `{gracePeriodSeconds: 2}`, refused: "--grace-period=1,"},
		"a pod is evicted with its own grace period":      {policy: "pod-deletions", now: `{metadata: {name: llm-node-0-0-x7k2p}}`, subresource: "eviction", refused: "evict it with 1"},
		"a pod is evicted with a second":                  {policy: "pod-deletions", now: `{metadata: {name: llm-node-0-0-x7k2p}, deleteOptions: {gracePeriodSeconds: 1}}`, subresource: "eviction"},
		"a pod of no Job is evicted":                      {policy: "pod-deletions", now: `{metadata: {name: web-0}}`, subresource: "eviction"},
		"a pod that has ended goes":                       {policy: "pod-deletions", old: bound(`phase: Failed`)},
		"a pod on no node goes":                           {policy: "pod-deletions", old: pod(placed, ``, `phase: Pending`)},
		"whoever deletes pods everywhere deletes it":      {policy: "pod-deletions", old: bound(ready), may: []string{"delete pods"}},
		"whoever evicts pods everywhere deletes it":       {policy: "pod-deletions", old: bound(ready), may: []string{"create pods/eviction"}, refused: "--grace-period=5"},

		"a Workload's pods ask for less":                      {policy: "workloads", old: workload(held, `podSets: [{name: node, count: 2}]`, ``), now: workload(held, `podSets: [{name: node, count: 1}]`, ``), refused: "only Kueue and kueue-trainer make it"},
		"Kueue changes it":                                    {policy: "workloads", old: workload(held, `podSets: [{name: node, count: 2}]`, ``), now: workload(held, `podSets: [{name: node, count: 1}]`, ``), may: []string{"update workloads/status"}},
		"a Workload that gives its quota back is deactivated": {policy: "workloads", old: workload(held, ``, evicted), now: workload(held, `active: false`, evicted)},
		"it is limited in time":                               {policy: "workloads", old: workload(held, ``, evicted), now: workload(held, `maximumExecutionTimeSeconds: 1`, evicted), refused: "gives its quota back"},
		"it is annotated":                                     {policy: "workloads", old: workload(held, ``, evicted), now: workload(held+`, annotations: {a: b}`, ``, evicted), refused: "gives its quota back"},
		"it loses what its spec had":                          {policy: "workloads", old: workload(held, `maximumExecutionTimeSeconds: 1`, evicted), now: workload(held, ``, evicted), refused: "gives its quota back"},
		"one that Kueue is about to deactivate is annotated":  {policy: "workloads", old: workload(held, ``, deactivating), now: workload(held+`, annotations: {a: b}`, ``, deactivating), refused: "gives its quota back"},
		"one that is marked is annotated":                     {policy: "workloads", old: workload(held+`, annotations: {kueue-trainer.dev/deactivate: "true"}`, ``, reserved), now: workload(held+`, annotations: {kueue-trainer.dev/deactivate: "true", a: b}`, ``, reserved), refused: "gives its quota back"},
		"one that is deleted is annotated":                    {policy: "workloads", old: workload(held+`, deletionTimestamp: "2026-01-01T00:00:00Z"`, ``, reserved), now: workload(held+`, deletionTimestamp: "2026-01-01T00:00:00Z", annotations: {a: b}`, ``, reserved), refused: "gives its quota back"},
		"a Workload gets a higher priority":                   {policy: "workloads", old: workload(held, `priority: 1`, ``), now: workload(held, `priority: 2`, ``), refused: "its podSets, priority"},
		"one for pods that are left is deactivated":           {policy: "workloads", old: workload(left, ``, ``), now: workload(left, `active: false`, ``), refused: "goes with the last of them"},
		"a copy without an owner yet loses what says so":      {policy: "workloads", old: workload(`labels: {kueue.x-k8s.io/multikueue-origin: m}`, ``, ``), now: workload(`labels: {}`, ``, ``), refused: "are Kueue's"},
		"it is annotated before":                              {policy: "workloads", old: workload(`labels: {kueue.x-k8s.io/multikueue-origin: m}`, ``, ``), now: workload(`labels: {kueue.x-k8s.io/multikueue-origin: m}, annotations: {a: b}`, ``, ``)},
		"a copy loses the finalizer that keeps its quota":     {policy: "workloads", old: workload(controlled+`, finalizers: [kueue-trainer.dev/quota]`, ``, ``), now: workload(controlled, ``, ``), refused: "only Kueue and kueue-trainer make it"},
		"a Workload that runs is annotated":                   {policy: "workloads", old: workload(held, ``, reserved), now: workload(held+`, annotations: {a: b}`, ``, reserved)},
		"a Workload is made with a controller":                {policy: "workloads", now: workload(madeUp, ``, ``), refused: "only Kueue gives it a controller"},
		"a Workload gets a controller":                        {policy: "workloads", old: workload(``, ``, ``), now: workload(madeUp, ``, ``), refused: "only Kueue gives it a controller"},
		"a Workload gets another controller":                  {policy: "workloads", old: workload(ofJobSet, ``, ``), now: workload(madeUp, ``, ``), refused: "only Kueue gives it a controller"},
		"a Workload's owner becomes its controller":           {policy: "workloads", old: workload(strings.Replace(madeUp, "true", "false", 1), ``, ``), now: workload(madeUp, ``, ``), refused: "only Kueue gives it a controller"},
		"Kueue makes the Workload of another kind's job":      {policy: "workloads", now: workload(ofJobSet, `priority: 1000`, ``), may: []string{"update workloads/status"}},
		"whoever patches Workloads everywhere makes one":      {policy: "workloads", now: workload(madeUp, ``, ``), may: []string{"patch workloads"}},
		"a tenant makes one without a controller":             {policy: "workloads", now: workload(strings.Replace(madeUp, "true", "false", 1), ``, ``)},
		"a Workload of another kind's job is annotated":       {policy: "workloads", old: workload(ofJobSet, ``, ``), now: workload(ofJobSet+`, annotations: {a: b}`, ``, ``)},
		"a Workload gets a finalizer":                         {policy: "workloads", old: workload(controlled, ``, ``), now: workload(controlled+`, finalizers: [example.com/mine]`, ``, ``), refused: "only Kueue and kueue-trainer make it"},
		"a Workload loses Kueue's finalizer":                  {policy: "workloads", old: workload(held, ``, ``), now: workload(controlled, ``, ``), refused: "only Kueue and kueue-trainer make it"},

		"a snapshot's other data": {policy: "snapshots", old: `{metadata: {name: llm-runtime-snapshot, ` + controlled + `}, data: {runtime: a}}`, now: `{metadata: {name: llm-runtime-snapshot, ` + controlled + `}, data: {runtime: a}, binaryData: {runtime: YQ==}}`, refused: "only Trainer writes it"},
		"a snapshot's data":       {policy: "snapshots", old: `{metadata: {name: llm-runtime-snapshot, ` + controlled + `}, data: {runtime: a}}`, now: `{metadata: {name: llm-runtime-snapshot, ` + controlled + `}, data: {runtime: b}}`, refused: "only Trainer writes it"},
		"a snapshot's owner":      {policy: "snapshots", old: `{metadata: {name: llm-runtime-snapshot, ` + controlled + `}}`, now: `{metadata: {name: llm-runtime-snapshot}}`, refused: "only Trainer writes it"},
		"a snapshot is annotated": {policy: "snapshots", old: `{metadata: {name: llm-runtime-snapshot, ` + controlled + `}}`, now: `{metadata: {name: llm-runtime-snapshot, annotations: {a: b}, ` + controlled + `}}`},

		"the runtime of a queued TrainJob asks for more": {policy: "runtimes", old: runtime(`name: node`), now: runtime(`name: node, resources: {limits: {nvidia.com/gpu: 8}}`), params: uses("own", ``, ``), refused: "only image, command, args and env"},
		"it runs more": {policy: "runtimes", old: runtime(`name: node`), now: strings.Replace(runtime(`name: node`), "{name: node, template", "{name: node, replicas: 2, template", 1), params: uses("own", ``, ``), refused: "only image, command, args and env"},
		"it is let go that is deleted": {policy: "runtimes", old: strings.Replace(runtime(`name: node`), "{name: own", `{name: own, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a]`, 1),
			now: strings.Replace(runtime(`name: node`), "{name: own", `{name: own, deletionTimestamp: "2026-01-01T00:00:00Z"`, 1), params: uses("own", ``, ``), refused: "which is queued"},
		"one of that name goes that is not the TrainJob's":            {policy: "runtimes", old: runtime(`name: node`), params: strings.Replace(uses("own", ``, ``), "kind: TrainingRuntime", "kind: ClusterTrainingRuntime", 1)},
		"it runs another image":                                       {policy: "runtimes", old: runtime(`name: node, image: a`), now: runtime(`name: node, image: b`), params: uses("own", ``, ``)},
		"it goes":                                                     {policy: "runtimes", old: runtime(`name: node`), params: uses("own", ``, ``), refused: "which is queued"},
		"it goes after its TrainJob is complete":                      {policy: "runtimes", old: runtime(`name: node`), params: uses("own", ``, is("Complete"))},
		"it goes after its TrainJob failed, before that is suspended": {policy: "runtimes", old: runtime(`name: node`), params: uses("own", ``, is("Failed")), refused: "which is queued"},
		"it goes after that":                                          {policy: "runtimes", old: runtime(`name: node`), params: uses("own", `suspend: true, `, is("Failed"))},
		"another one goes":                                            {policy: "runtimes", old: runtime(`name: node`), params: uses("other", ``, ``)},

		"what a queued TrainJob's pods claim by goes": {policy: "claims", old: `{metadata: {name: own}}`, params: claims(controlled, ``), refused: "charged for what it claims"},
		"it is let go that is deleted already": {policy: "claims", old: `{metadata: {name: own, deletionTimestamp: "2026-01-01T00:00:00Z", finalizers: [a]}}`, now: `{metadata: {name: own, deletionTimestamp: "2026-01-01T00:00:00Z"}}`,
			params: claims(controlled, ``), refused: "charged for what it claims"},
		"what a Workload without owners claims by goes": {policy: "claims", old: `{metadata: {name: own}}`, params: claims(`labels: {}`, ``), refused: "that of Workload wl"},
		"what a group of pods claims by goes":           {policy: "claims", old: `{metadata: {name: own}}`, params: claims(`ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: p}]`, ``)},
		"it goes when the TrainJob is over":             {policy: "claims", old: `{metadata: {name: own}}`, params: claims(controlled, is("Finished"))},
		"it goes where another kind's pods claim by it": {policy: "claims", old: `{metadata: {name: own}}`, params: claims(ofJobSet, ``)},
		"another template goes":                         {policy: "claims", old: `{metadata: {name: other}}`, params: claims(controlled, ``)},

		"a claim says that it is a pod's":               {policy: "pod-claims", now: `{metadata: {name: c, annotations: {resource.kubernetes.io/pod-claim-name: gpu}}}`, refused: "would be a pod's"},
		"a pod gets a claim that is there":              {policy: "pod-claims", old: `{metadata: {name: c}}`, now: `{metadata: {name: c, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: p}]}}`, refused: "would be a pod's"},
		"a claim is a made-up kind's, with a pod's UID": {policy: "pod-claims", now: `{metadata: {name: c, ` + madeUp + `}}`, refused: "would be a pod's"},
		"it becomes that later":                         {policy: "pod-claims", old: `{metadata: {name: c}}`, now: `{metadata: {name: c, ` + madeUp + `}}`, refused: "would be a pod's"},
		"it was that before":                            {policy: "pod-claims", old: `{metadata: {name: c, ` + madeUp + `}}`, now: `{metadata: {name: c, labels: {a: b}, ` + madeUp + `}}`},
		"a controller makes a claim":                    {policy: "pod-claims", now: `{metadata: {name: c, ` + madeUp + `}}`, may: []string{"create resourceclaims"}},
		"Kubernetes makes it":                           {policy: "pod-claims", now: `{metadata: {name: c, annotations: {resource.kubernetes.io/pod-claim-name: gpu}}}`, may: []string{"create resourceclaims"}},
		"a pod is bound with other labels":              {policy: "pod-bindings", subresource: "binding", now: `{metadata: {name: p, labels: {batch.kubernetes.io/controller-uid: x}}, target: {kind: Node, name: n}}`, refused: "is bound by a scheduler"},
		"a pod is bound with annotations":               {policy: "pod-bindings", subresource: "binding", now: `{metadata: {name: p, annotations: {a: b}}, target: {kind: Node, name: n}}`, refused: "is bound by a scheduler"},
		"a pod is bound to a node":                      {policy: "pod-bindings", subresource: "binding", now: `{metadata: {name: p}, target: {kind: Node, name: n}}`, refused: "is bound by a scheduler"},
		"a scheduler binds it":                          {policy: "pod-bindings", subresource: "binding", now: `{metadata: {name: p, labels: {a: b}}, target: {kind: Node, name: n}}`, may: []string{"create pods/binding"}},
		"the queue of a TrainJob goes":                  {policy: "localqueues", old: `{metadata: {name: q}}`, params: workload(controlled, ``, reserved), refused: "that of TrainJob llm"},
		"the queue of one that is over goes":            {policy: "localqueues", old: `{metadata: {name: q}}`, params: workload(controlled, ``, `conditions: [`+is("Finished")+`]`)},
		"another queue goes":                            {policy: "localqueues", old: `{metadata: {name: other}}`, params: workload(controlled, ``, reserved)},
		"the queue of another kind's job goes":          {policy: "localqueues", old: `{metadata: {name: q}}`, params: workload(ofJobSet, ``, reserved)},
		"an admin deletes the queue":                    {policy: "localqueues", old: `{metadata: {name: q}}`, params: workload(controlled, ``, reserved), may: []string{"create localqueues"}},
		"the garbage collector deletes it":              {policy: "localqueues", old: `{metadata: {name: q}}`, params: workload(controlled, ``, reserved), may: []string{"delete localqueues", "delete guarded"}, refused: "that of TrainJob llm"},
		"a Workload is filled by a manager of fields":   {policy: "workloads", old: workload(held, ``, reserved), now: workload(held+full, ``, reserved), refused: "bytes of fields"},
		"one without owners is filled so":               {policy: "workloads", now: workload(`labels: {}`+full, ``, ``), refused: "bytes of fields"},
		"one that is as full already may change":        {policy: "workloads", old: workload(held+full, ``, reserved), now: workload(held+`, labels: {a: b}`+full, ``, reserved)},
		"a Job gets a pod by a label":                   {policy: "pod-adoptions", old: pod(``, ``, ``), now: pod(`labels: {batch.kubernetes.io/controller-uid: j}`, ``, ``), refused: "would be a Job's by its labels"},
		"the Job controller's pod":                      {policy: "pod-adoptions", now: pod(`labels: {batch.kubernetes.io/controller-uid: j}`, ``, ``), may: []string{"update jobs/status"}},
	}, func(t *testing.T, tc request) {
		refusal := answer(t, compiled["kueue-trainer-"+tc.policy], tc)
		expect.That(t, (refusal == "") == (tc.refused == "") && strings.Contains(refusal, tc.refused), "The policy says %q, want %q", refusal, tc.refused)
	})
}

// rights has somebody have those in all namespaces.
type rights []string

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(r, strings.TrimSuffix(a.GetVerb()+" "+a.GetResource()+"/"+a.GetSubresource(), "/")) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// answer is what a policy says to a request; empty: it lets it pass.
func answer(t *testing.T, policy validating.Validator, r request) string {
	t.Helper()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Any"}
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "any"}
	object := func(text string) runtime.Object {
		if text == "" {
			return nil
		}
		obj := &unstructured.Unstructured{}
		// Numbers are such of 64 bits, as the API server has them.
		expect.NoError(t, utiljson.Unmarshal(expect.Must(yaml.YAMLToJSON([]byte(text)))(t), &obj.Object))
		obj.SetGroupVersionKind(kind)
		obj.SetNamespace("team")
		return obj
	}
	versioned := &admission.VersionedAttributes{VersionedKind: kind, VersionedObject: object(r.now), VersionedOldObject: object(r.old)}
	operation, options := admission.Update, runtime.Object(nil)
	switch {
	case r.old == "":
		operation = admission.Create
	case r.now == "":
		deletion := expect.FromYAML[metav1.DeleteOptions](t, r.options)
		operation, options = admission.Delete, &deletion
	}
	name := expect.Must(meta.Accessor(cmp.Or(versioned.VersionedObject, versioned.VersionedOldObject)))(t).GetName()
	versioned.Attributes = admission.NewAttributesRecord(versioned.VersionedObject, versioned.VersionedOldObject, kind, "team", name, resource, r.subresource,
		operation, options, false, &user.DefaultInfo{Name: "tenant"})
	result := policy.Validate(t.Context(), resource, versioned, object(r.params), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, celconfig.RuntimeCELCostBudget, rights(r.may))
	for _, decision := range result.Decisions {
		if decision.Action == validating.ActionDeny {
			return decision.Message
		}
	}
	return ""
}

// validator compiles a policy as the API server does.
func validator(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler := expect.Must(cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())))(t)
	declared := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	var variables []cel.NamedExpressionAccessor
	var matches, validations, messages []cel.ExpressionAccessor
	for i := range policy.Spec.Variables {
		variables = append(variables, (*validating.Variable)(&policy.Spec.Variables[i]))
	}
	for i := range policy.Spec.MatchConditions {
		matches = append(matches, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	compile := func(all []cel.ExpressionAccessor) cel.ConditionEvaluator {
		return compiler.CompileCondition(all, declared, environment.NewExpressions)
	}
	compiler.CompileAndStoreVariables(variables, declared, environment.NewExpressions)
	fail := admissionregistrationv1.Fail
	var matcher matchconditions.Matcher
	if len(matches) > 0 {
		matcher = matchconditions.NewMatcher(compile(matches), &fail, "policy", "validate", policy.Name)
	}
	return validating.NewValidator(compile(validations), matcher, compile(nil), compile(messages), &fail, nil)
}
