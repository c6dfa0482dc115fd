// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	only21   = until(world.Trainer21)
	anything = `{nodeSelector: {pool: a}}`
	// longest is a manager of 253 characters.
	longest = `example.com/` + strings.Repeat("x", 253-len("example.com/"))
)

var _ = DescribeTable("The rules for patches give the verdict of Trainer", core,
	func(ctx context.Context, a attempt, want ruling) {
		w := newWorld(ctx)
		verdict, refusal := w.ask(ctx, a)
		By(fmt.Sprintf("hearing the rules: %v, and Trainer: %v", verdict, refusal))

		findings := slices.Concat(verdict.Warnings, verdict.Unmade)
		if want.refused {
			Expect(refusal).To(MatchError(ContainSubstring(want.words)))
			findings = verdict.Errors
		} else {
			Expect(refusal).NotTo(HaveOccurred())
			Expect(verdict.Errors).To(BeEmpty())
		}
		if want.field == "" {
			Expect(findings).To(BeEmpty())
			return
		}
		ending := strings.Replace(want.field, "spec.runtimePatches", "spec."+fieldOf[trainerOf(ctx)], 1)
		Expect(findings).To(ContainElement(HaveField("Field", HaveSuffix(ending))))
	},

	// Target jobs and containers.
	Entry("on a replicated job of the runtime", patching("node", anything), taken()),
	Entry("on a replicated job that the runtime has not", until(world.Trainer22), patching("worker", anything),
		refusedFor("name", "doesn't exist in the runtime job template")),
	Entry("on a replicated job that the runtime has not, which 2.3 takes", since(world.Trainer23), patching("worker", anything),
		takenWithWarning("replicatedJobs[0].name")),
	Entry("on a replicated job without a name", patching(`""`, anything), refusedFor("name", "name")),
	Entry("on a container of the runtime", patching("node", `{containers: [{name: side, env: [{name: A, value: b}]}]}`), taken()),
	Entry("on a container that the runtime has not", patching("node", `{containers: [{name: other}]}`), takenWithWarning("containers[0].name")),
	Entry("on an init container that the runtime has not", patching("node", `{initContainers: [{name: other}]}`), takenWithWarning("initContainers[0].name")),
	Entry("on two patches of one container", patching("node", `{containers: [{name: side}, {name: side}]}`),
		refusedFor("containers[1].name", "Duplicate value")),

	// Variables.
	Entry("on variables of node", patching("node", `{containers: [{name: node, env: [{name: A}]}]}`), refusedFor("containers[0].env", "must not have envs")),
	Entry("on variables of dataset-initializer", patching("dataset-initializer", `{containers: [{name: dataset-initializer, env: [{name: A}]}]}`),
		refusedFor("containers[0].env", "must not have envs")),
	Entry("on variables of model-initializer", patching("model-initializer", `{containers: [{name: model-initializer, env: [{name: A}]}]}`),
		refusedFor("containers[0].env", "must not have envs")),
	Entry("on variables of an init container", patching("node", `{initContainers: [{name: fetch, env: [{name: A}]}]}`), taken()),
	Entry("on volumes and mounts of node", patching("node", `{volumes: [{name: v, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: v, mountPath: /v}]}]}`), taken()),

	// What belongs to the TrainJob itself.
	Entry("on the trainer's command", patching("node", `{containers: [{name: node, command: [x]}]}`), refusedFor("containers[0].command", "command")),
	Entry("on the trainer's args", patching("node", `{containers: [{name: node, args: [x]}]}`), refusedFor("containers[0].args", "args")),
	Entry("on the trainer's image", patching("node", `{containers: [{name: node, image: x}]}`), refusedFor("containers[0].image", "image")),
	Entry("on the trainer's resources", patching("node", `{containers: [{name: node, resources: {}}]}`), refusedFor("containers[0].resources", "resources")),
	Entry("on another field that Trainer does not patch", patching("node", `{hostNetwork: true}`), refusedFor("hostNetwork", "hostNetwork")),
	Entry("on a field of a later release", until(world.Trainer22), patching("node", `{terminationGracePeriodSeconds: 5}`),
		refusedFor("terminationGracePeriodSeconds", "terminationGracePeriodSeconds")),
	Entry("on a secret without a name, beside one of the runtime", patching("node", `{imagePullSecrets: [{}]}`),
		refusedFor("imagePullSecrets[0].name", "panic")),
	Entry("on a secret without a name, alone", patching("model-initializer", `{imagePullSecrets: [{}]}`), takenWithWarning("imagePullSecrets[0].name")),

	// Managers.
	Entry("on a manager", since(world.Trainer22), attempt{now: entries(entry("example.com/user", anything))}, taken()),
	Entry("on no manager", since(world.Trainer22), attempt{now: entries(entry(`""`, anything))}, refusedFor("manager", "manager")),
	Entry("on a manager of 253 characters", since(world.Trainer22), attempt{now: entries(entry(longest, anything))}, taken()),
	Entry("on a manager of 254 characters", since(world.Trainer22), attempt{now: entries(entry(longest+"x", anything))}, refusedFor("manager", "manager: Too long")),
	Entry("on a manager without a domain", since(world.Trainer22), attempt{now: entries(entry("user", anything))}, refusedFor("manager", "domain-prefixed path")),
	Entry("on two entries of one manager", since(world.Trainer22), attempt{now: entries(`[{manager: a.io/x}, {manager: a.io/x}]`)},
		refusedFor("[1].manager", "Duplicate value")),
	Entry("on a manager under a new name", since(world.Trainer22),
		attempt{before: entries(entry("a.io/x", anything)), now: entries(entry("a.io/y", anything))}, takenWithWarning("manager")),
	Entry("on more entries than a TrainJob may have", since(world.Trainer22), attempt{now: entries(many(17, `{manager: a.io/x%d}`))},
		refusedFor("spec.runtimePatches", "Too many")),

	// Time stamps.
	Entry("on a time", since(world.Trainer22), attempt{now: entries(`[{manager: a.io/x, time: "2026-01-01T00:00:00Z"}]`)}, taken()),
	Entry("on a time that is none", since(world.Trainer22), attempt{now: entries(`[{manager: a.io/x, time: yesterday}]`)}, refusedFor("spec.runtimePatches[0].time", "time")),
	Entry("on another time of the same entry, while it runs", since(world.Trainer22), attempt{
		before: entries(`[{manager: a.io/x, time: "2026-01-01T00:00:00Z"}]`), now: entries(`[{manager: a.io/x, time: "2026-01-02T00:00:00Z"}]`), runs: true, willRun: true,
	}, taken()),

	// What may change, and when.
	Entry("on a change while it is suspended", attempt{before: entries(`[]`), now: inPods("node", anything)}, taken()),
	Entry("on a change while it runs", attempt{before: entries(`[]`), now: inPods("node", anything), runs: true, willRun: true},
		refusedFor("spec.runtimePatches", "can only be modified when the TrainJob is suspended")),
	Entry("on the same patches while it runs", attempt{before: inPods("node", anything), now: inPods("node", anything), runs: true, willRun: true}, taken()),
	Entry("on a change with a suspend, while pods are active", attempt{before: entries(`[]`), now: inPods("node", anything), runs: true},
		refusedFor("spec.runtimePatches", "cannot be modified when the JobSet's ReplicatedJob")),
	Entry("on a change with an unsuspend", since(world.Trainer22), attempt{before: entries(`[]`), now: inPods("node", anything), willRun: true}, taken()),
	Entry("on a change with an unsuspend of 2.1", only21, attempt{before: entries(`[]`), now: inPods("node", anything), willRun: true},
		refusedFor("spec.runtimePatches", "can only be modified when the TrainJob is suspended")),
	Entry("on a service account that is set later", attempt{before: inPods("node", anything), now: inPods("node", `{serviceAccountName: a}`)}, taken()),
	Entry("on another service account in an entry", since(world.Trainer22),
		attempt{before: inPods("node", `{serviceAccountName: a}`), now: inPods("node", `{serviceAccountName: b}`)},
		refusedFor("serviceAccountName", "field is immutable")),
	Entry("on another mount in an entry", since(world.Trainer22), attempt{
		before: inPods("node", `{containers: [{name: node, volumeMounts: [{name: v, mountPath: /a}]}]}`),
		now:    inPods("node", `{containers: [{name: node, volumeMounts: [{name: v, mountPath: /b}]}]}`),
	}, refusedFor("containers", "field is immutable")),
	Entry("on other tolerations in an entry", attempt{
		before: inPods("node", `{tolerations: [{key: a, operator: Exists}]}`), now: inPods("node", `{tolerations: [{key: b, operator: Exists}]}`),
	}, taken()),

	// Overrides.
	Entry("on another service account in an override", only21,
		attempt{before: inPods("node", `{serviceAccountName: a}`), now: inPods("node", `{serviceAccountName: b}`)}, taken()),
	Entry("on an override without target jobs", only21, attempt{now: entries(`[{spec: {nodeSelector: {a: b}}}]`)}, refusedFor("targetJobs", "targetJobs")),
	Entry("on an override for no target job", only21, attempt{now: entries(`[{targetJobs: []}]`)}, taken()),
	Entry("on an override with an unknown job beside a known one", only21, attempt{now: entries(`[{targetJobs: [{name: node}, {name: worker}]}]`)},
		refusedFor("targetJobs[1].name", "doesn't exist in the runtime job template")),
	Entry("on two overrides of one job", only21, attempt{now: entries(`[{targetJobs: [{name: node}]}, {targetJobs: [{name: node}]}]`)}, taken()),
	Entry("on labels of pods in an override", only21, attempt{now: entries(`[{targetJobs: [{name: node}], metadata: {labels: {a: b}}}]`)}, taken()),
	Entry("on a name of pods in an override", only21, attempt{now: entries(`[{targetJobs: [{name: node}], metadata: {name: x}}]`)}, takenWithWarning("metadata.name")),
	Entry("on a manager of an override", only21, attempt{now: entries(`[{targetJobs: [{name: node}], manager: a.io/x}]`)}, refusedFor("manager", "manager")),
	Entry("on a security context in an override", only21, patching("node", `{securityContext: {}}`), refusedFor("securityContext", "securityContext")),
)
