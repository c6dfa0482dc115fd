// SPDX-License-Identifier: Apache-2.0

package main

// mutants are grouped by file, in the order of the code.
var mutants = []mutant{
	{
		Breaks: "fewer placements than replicated jobs are taken for all",
		File:   "pkg/podset/place.go", Test: "TestPlaceErrorsArePermanentAndSayWhere",
		Search: "if len(podSets) != len(infos) {", Replace: "if len(podSets) < len(infos) {",
	},
	{
		Breaks: "an admission of another PodSet is placed",
		File:   "pkg/podset/place.go", Test: "TestPlaceErrorsArePermanentAndSayWhere",
		Search: "if ps.Name != info.Name {", Replace: "if ps.Name == \"\" {",
	},
	{
		Breaks: "a node selector that contradicts the flavor wins silently",
		File:   "pkg/podset/place.go", Test: "TestPlaceErrorsArePermanentAndSayWhere",
		Search: "old, ok := have[key]; ok && old != value", Replace: "old, ok := have[key]; ok && old == value",
	},
	{
		Breaks: "pods go without the flavor's node labels",
		File:   "pkg/podset/place.go", Test: "TestPlace", Spec: "is preempted and resumes on a flavor",
		Search: "NodeSelector:    info.NodeSelector,", Replace: "NodeSelector:    pod.NodeSelector,",
	},
	{
		Breaks: "the flavor's tolerations replace the runtime's",
		File:   "pkg/podset/place.go", Test: "TestPlace", Spec: "keeps the runtime's tolerations beside the flavor's",
		Search: "return union(union(nil, base), admission)", Replace: "return union(nil, admission)",
	},
	{
		Breaks: "Kueue's topology gate is lost",
		File:   "pkg/podset/place.go", Test: "TestPlace",
		Search: "SchedulingGates: info.SchedulingGates,", Replace: "SchedulingGates: pod.SchedulingGates,",
	},
	{
		Breaks: "several replicas are charged as one",
		File:   "pkg/podset/podset.go", Test: "TestFromJobSetCounts",
		Search: "rj.Replicas * PodsPerReplica(rj),", Replace: "PodsPerReplica(rj),",
	},
	{
		Breaks: "a Job is charged for more pods than it has completions",
		File:   "pkg/podset/podset.go", Test: "TestFromJobSetCounts",
		Search: "return min(parallelism, ptr", Replace: "return max(parallelism, ptr",
	},
	{
		Breaks: "PodSets do not tolerate GPU nodes",
		File:   "pkg/podset/podset.go", Test: "TestFromJobSetTolerations",
		Search: "pod.Tolerations = union(pod.Tolerations, gpu.Tolerations(pod))", Replace: "_ = gpu.Tolerations(pod)",
	},
	{
		Breaks: "Kueue ranks pods without the index of their Job",
		File:   "pkg/podset/podset.go", Test: "TestFromJobSetTopology",
		Search: "SubGroup(ptr.To(jobsetapi.JobIndexKey), ptr.To(rj.Replicas)).\n", Replace: "SubGroup(nil, nil).\n",
	},
	{
		Breaks: "tolerations are there twice",
		File:   "pkg/podset/podset.go", Test: "TestPlaceKeepsTheFirstTolerationSeconds",
		Search: "if !slices.ContainsFunc(have, func(h corev1.Toleration) bool { return tolerations.Equal(h, t) }) {", Replace: "if len(more) > 0 || tolerations.Equal(t, t) {",
	},
	{
		Breaks: "a waiting job keeps the node selector that its user changed",
		File:   "pkg/podset/selection.go", Test: "TestSameSelection", Spec: "is admitted for the nodes that its user asked for last",
		Search: "equality.Semantic.DeepEqual(x.NodeSelector, y.NodeSelector) &&", Replace: "true &&",
	},
	{
		Breaks: "a waiting job keeps the topology that its user changed",
		File:   "pkg/podset/selection.go", Test: "TestSameSelection",
		Search: "equality.Semantic.DeepEqual(a.TopologyRequest, b.TopologyRequest)", Replace: "true",
	},
	{
		Breaks: "a job with other counts counts as charged alike",
		File:   "pkg/podset/resources.go", Test: "TestSameResources",
		Search: "x.Count == y.Count &&", Replace: "true &&",
	},
	{
		Breaks: "a job whose init containers ask for more counts as charged alike",
		File:   "pkg/podset/resources.go", Test: "TestSameResources",
		Search: "slices.EqualFunc(p.InitContainers, q.InitContainers, asksAlike) &&", Replace: "true &&",
	},
	{
		Breaks: "ready before its last pod is",
		File:   "pkg/podset/status.go", Test: "TestReady",
		Search: "+ptr.Deref(status.Succeeded, 0) < rj.Replicas", Replace: "+ptr.Deref(status.Succeeded, 0) <= 0",
	},
	{
		Breaks: "a download behind dependsOn counts as not ready",
		File:   "pkg/podset/status.go", Test: "TestReady",
		Search: "if !dependenciesMet(rj, replicas, byName) {", Replace: "if len(rj.DependsOn) > 99 {",
	},
	{
		Breaks: "quota of a JobSet that may restart is reclaimed",
		File:   "pkg/podset/status.go", Test: "TestReclaimable",
		Search: "policy.MaxRestarts > 0 ||", Replace: "policy.MaxRestarts < 0 ||",
	},
	{
		Breaks: "quota of a JobSet that a rule restarts is reclaimed",
		File:   "pkg/podset/status.go", Test: "TestReclaimable",
		Search: "rule.Action == jobsetapi.RestartJobSetAndIgnoreMaxRestarts", Replace: "rule.Action == \"\"",
	},
	{
		Breaks: "reclaimed quota is taken back",
		File:   "pkg/podset/status.go", Test: "TestReclaimable",
		Search: "max(succeeded*PodsPerReplica(rj), counts[name])", Replace: "succeeded * PodsPerReplica(rj)",
	},
	{
		Breaks: "a child Job keeps our gate",
		File:   "pkg/podset/template.go", Test: "TestPlaceTemplate",
		Search: "if g.Name != patch.AdmissionGate && !owned(g.Name)", Replace: "if !owned(g.Name)",
	},
	{
		Breaks: "a child Job loses somebody else's gate",
		File:   "pkg/podset/template.go", Test: "TestPlaceTemplate",
		Search: "out = append(out, g)\n", Replace: "_ = g\n",
	},
	{
		Breaks: "a child Job keeps the labels of a former admission",
		File:   "pkg/podset/template.go", Test: "TestPlaceTemplate",
		Search: "maps.DeleteFunc(out, func(key, _ string) bool { return owned(key) })", Replace: "maps.DeleteFunc(out, func(key, _ string) bool { return false })",
	},
	{
		Breaks: "a child Job keeps the node selector of a former flavor",
		File:   "pkg/podset/template.go", Test: "TestPlaceTemplate", Spec: "is preempted and resumes on a flavor",
		Search: "out := map[string]string{}\n	if value, ok := have[jobsetapi", Replace: "out := maps.Clone(have)\n	if value, ok := have[jobsetapi",
	},
	{
		Breaks: "a child Job keeps the tolerations of a former flavor",
		File:   "pkg/podset/template.go", Test: "TestPlaceTemplate",
		Search: "if t.Key == jobsetapi.NoScheduleTaintKey && ", Replace: "if ",
	},
	{
		Breaks: "exclusive placement by node selector is lost",
		File:   "pkg/podset/template.go", Test: "TestPlaceTemplate",
		Search: "out[jobsetapi.NamespacedJobKey] = value", Replace: "_ = value",
	},
	{
		Breaks: "a gated pod with the node selector of a former flavor is freed",
		File:   "pkg/podset/template.go", Test: "TestPlacePod",
		Search: "(!ok && stale && key != jobsetapi.NamespacedJobKey)", Replace: "(!ok && !stale && key == jobsetapi.NamespacedJobKey)",
	},
	{
		Breaks: "a gated pod is freed without Kueue's topology gate",
		File:   "pkg/podset/template.go", Test: "TestPlacePod",
		Search: "if !slices.Contains(pod.Spec.SchedulingGates, gate) {", Replace: "if slices.Contains(pod.Spec.SchedulingGates, gate) {",
	},
	{
		Breaks: "a JobSet with our gate counts as placed",
		File:   "pkg/podset/template.go", Test: "TestPlaced",
		Search: "return !labeled || patch", Replace: "return !labeled && patch",
	},
	{
		Breaks: "the rules of the configuration add no tolerations",
		File:   "pkg/podset/tolerations.go", Test: "TestAddTolerations",
		Search: "if rule.appliesTo(pod) {", Replace: "if !rule.appliesTo(pod) {",
	},
	{
		Breaks: "PodSets lack the defaults of the API server",
		File:   "pkg/podset/defaults.go", Test: "TestDefaultsApply",
		Search: "defaulting.Default(value, d.podSet)", Replace: "_ = value",
	},
	{
		Breaks: "a waiting job has no gate",
		File:   "pkg/patch/patch.go", Test: "TestEntry", Spec: "holds the pods of a TrainJob that a user resumes without quota",
		Search: "SchedulingGates: []corev1.PodSchedulingGate{{Name: AdmissionGate}},\n	}", Replace: "SchedulingGates: nil,\n	}",
	},
	{
		Breaks: "a placement loses its tolerations on the way into the entry",
		File:   "pkg/patch/patch.go", Test: "TestEntry",
		Search: "Tolerations:     p.Tolerations,\n", Replace: "Tolerations:     nil,\n",
	},
	{
		Breaks: "our entry comes first, so that a user's wins over the admission",
		File:   "pkg/patch/patch.go", Test: "TestOthersFindWithLast",
		Search: "return append(Others(patches), ours)", Replace: "return append([]trainjob.RuntimePatch{ours}, Others(patches)...)",
	},
	{
		Breaks: "an entry of ours that is not the last counts as last",
		File:   "pkg/patch/patch.go", Test: "TestOthersFindWithLast",
		Search: "return i >= 0 && i == len(patches)-1", Replace: "return i >= 0",
	},
	{
		Breaks: "an entry with another time counts as changed",
		File:   "pkg/patch/same.go", Test: "TestSame",
		Search: "delete(value, \"time\")", Replace: "delete(value, \"manager\")",
	},
	{
		Breaks: "our entry is written again and again",
		File:   "pkg/patch/field_patches.go", Test: "TestFieldSetChangesNothingForTheTimeThatTrainerStamps",
		Search: "ours != nil && f.Last(spec) && Same(*ours, entry)", Replace: "ours != nil && f.Last(spec) && ours.Equal(entry)",
	},
	{
		Breaks: "our entry stays behind a later one of a user",
		File:   "pkg/patch/field_patches.go", Test: "TestFieldSetChangesNothingTwice",
		Search: "ours != nil && f.Last(spec) && Same(*ours, entry)", Replace: "ours != nil && Same(*ours, entry)",
	},
	{
		Breaks: "an update of ours rewrites the entries of others",
		File:   "pkg/patch/field_patches.go", Test: "TestFieldRestoresOthersInOwnWrites", Spec: "keep every byte and their order",
		Search: "(own || now.SemanticallyEqual(*before))", Replace: "(!own && now.SemanticallyEqual(*before))",
	},
	{
		Breaks: "what a user changes in an entry of their own is undone",
		File:   "pkg/patch/field_patches.go", Test: "TestFieldRestoresOthersInOwnWrites",
		Search: "(own || now.SemanticallyEqual(*before))", Replace: "true",
	},
	{
		Breaks: "on Trainer 2.1 our overrides are taken for a user's",
		File:   "pkg/patch/field_overrides.go", Test: "TestFieldForRendering",
		Search: "if mark.Override(o) {\n			ours", Replace: "if !mark.Override(o) {\n			ours",
	},
	{
		Breaks: "on Trainer 2.1 an override of ours does not say whose it is",
		File:   "pkg/patch/field_overrides.go", Test: "TestOurPartStaysOursWhenConverted",
		Search: "maps.Copy(annotations, p.Annotations)", Replace: "annotations = maps.Clone(p.Annotations)",
	},
	{
		Breaks: "on Trainer 2.1 our overrides come first",
		File:   "pkg/patch/field_overrides.go", Test: "TestFieldCopy",
		Search: "_, others := split(spec.PodTemplateOverrides)\n	spec.PodTemplateOverrides = slices.Concat(others, ours)", Replace: "_, others := split(spec.PodTemplateOverrides)\n	spec.PodTemplateOverrides = slices.Concat(ours, others)",
	},
	{
		Breaks: "on Trainer 2.1 an update of ours rewrites the overrides of others",
		File:   "pkg/patch/field_overrides.go", Test: "TestFieldRestoresOthersInOwnWrites",
		Search: "if !own {", Replace: "if own {",
	},
	{
		Breaks: "a user may rewrite our entry",
		File:   "pkg/patch/validate.go", Test: "TestChanged", Spec: "changes the manager's entry",
		Search: "if !f.Has(after) || (want != nil && f.Same(want, after)) {", Replace: "if !f.Has(after) || want != nil {",
	},
	{
		Breaks: "a user may write an entry in our name",
		File:   "pkg/patch/validate.go", Test: "TestChanged",
		Search: "want = allowed", Replace: "want = after",
	},
	{
		Breaks: "a patch of a replicated job that is not there is taken",
		File:   "pkg/patch/validate.go", Test: "TestUnknownJobs",
		Search: "if !known.Has(name) {", Replace: "if known.Has(name) {",
	},
	{
		Breaks: "Trainer 2.1 is taken for a newer one",
		File:   "pkg/patch/field.go", Test: "TestFieldForRendering",
		Search: "if served == trainjob.Trainer21 {", Replace: "if served > trainjob.Trainer21 {",
	},
	{
		Breaks: "Trainer 2.3 is taken for 2.2, whose resources replace the runtime's",
		File:   "pkg/trainjob/version.go", Test: "TestTrainerVersionOfTheTrainerWeAreBuiltWith",
		Search: "case hasField(schema, gracePeriodField...):\n			return Trainer23, nil", Replace: "case hasField(schema, gracePeriodField...):\n			return Trainer22, nil",
	},
	{
		Breaks: "an entry of another manager loses the fields that our types do not know",
		File:   "pkg/trainjob/types.go", Test: "TestRuntimePatchesKeepTheirBytes",
		Search: "p.Manager, p.raw = key.Manager, bytes.Clone(data)\n	return nil", Replace: "p.Manager = key.Manager\n	p.raw, _ = json.Marshal(key)\n	return nil",
	},
	{
		Breaks: "the bytes of an entry change under us",
		File:   "pkg/trainjob/types.go", Test: "TestRuntimePatchKeepsItsOwnBytes",
		Search: "p.Manager, p.raw = key.Manager, bytes.Clone(data)", Replace: "p.Manager, p.raw = key.Manager, data",
	},
	{
		Breaks: "a job that says nothing of suspend counts as suspended",
		File:   "pkg/trainjob/types.go", Test: "TestSuspended",
		Search: "return t.Spec.Suspend != nil && *t.Spec.Suspend", Replace: "return t.Spec.Suspend == nil || *t.Spec.Suspend",
	},
	{
		Breaks: "8 and \"8\" count as different amounts",
		File:   "pkg/trainjob/same.go", Test: "TestSameMeaning",
		Search: "case \"limits\", \"requests\":", Replace: "case \"limits\":",
	},
	{
		Breaks: "a waiting job follows the edited runtime in place of its snapshot",
		File:   "pkg/trainjob/runtime.go", Test: "TestRuntimesFor", Spec: "follows its snapshot where the runtime is edited meanwhile",
		Search: "err != nil || runtime.Spec != nil {\n		return runtime, err", Replace: "err != nil {\n		return runtime, err",
	},
	{
		Breaks: "the snapshot of a former job of the same name is taken for this one's",
		File:   "pkg/trainjob/runtime.go", Test: "TestRuntimesForTellsJobsOfOneNameApart",
		Search: "owner == nil || owner.UID != job.UID", Replace: "owner == nil",
	},
	{
		Breaks: "a snapshot of nobody is taken for Trainer's",
		File:   "pkg/trainjob/runtime.go", Test: "TestRuntimesFor",
		Search: "owner == nil || owner.UID != job.UID", Replace: "owner != nil && owner.UID != job.UID",
	},
	{
		Breaks: "a watch cache that is behind hides a snapshot",
		File:   "pkg/trainjob/runtime.go", Test: "TestRuntimesAreNotMisledByAWatchCacheThatIsBehind",
		Search: "return r.snapshotOf(ctx, job, storage)\n}", Replace: "return r.snapshotOf(ctx, job, watchCache)\n}",
	},
	{
		Breaks: "an empty snapshot counts as a runtime",
		File:   "pkg/trainjob/runtime.go", Test: "TestRuntimesFor",
		Search: "if data == \"\" {", Replace: "if data == \"-\" {",
	},
	{
		Breaks: "Trainer 2.1's resources are merged in place of replaced",
		File:   "pkg/trainjob/runtime.go", Test: "TestOlderTrainersReplaceResources",
		Search: "if err != nil || !asksForResources(job) {", Replace: "if err != nil || asksForResources(job) {",
	},
	{
		Breaks: "Trainer 2.1's resources replace those of every container",
		File:   "pkg/trainjob/replace.go", Test: "TestOlderTrainersReplaceResourcesOfTheNodeContainerAlone",
		Search: "if containers[j].Name == constants.Node {", Replace: "if containers[j].Name != \"\" {",
	},
	{
		Breaks: "a replicated job without replicas is charged nothing",
		File:   "pkg/trainjob/render.go", Test: "TestRenderCounts",
		Search: "rj.Replicas = ptr.Deref(replicas, 1)", Replace: "rj.Replicas = ptr.Deref(replicas, 0)",
	},
	{
		Breaks: "rendering writes into the runtime that everybody shares",
		File:   "pkg/trainjob/render.go", Test: "TestRenderIsPure",
		Search: "typed, spec = typed.DeepCopy(), spec.DeepCopy()", Replace: "typed = typed.DeepCopy()",
	},
	{
		Breaks: "a shared GPU is no GPU",
		File:   "pkg/gpu/gpu.go", Test: "TestTolerations",
		Search: "if name == Whole || name == shared {", Replace: "if name == Whole {",
	},
	{
		Breaks: "a MIG device's own taint is not tolerated",
		File:   "pkg/gpu/gpu.go", Test: "TestTolerations",
		Search: "names = append([]corev1.ResourceName{Whole}, names...)", Replace: "names = []corev1.ResourceName{Whole}",
	},
	{
		Breaks: "a client that applies a list without our entry drops it from a running job",
		File:   "pkg/integration/webhook/defaults.go", Test: "TestDefaulter", Spec: "on a running TrainJob comes back when a client applies a list that does not have it",
		Search: "field.Copy(&job.Spec, &old.Spec)", Replace: "_ = field",
	},
	{
		Breaks: "a user's later entry stays after ours",
		File:   "pkg/integration/webhook/defaults.go", Test: "TestDefaulter",
		Search: "field.Copy(&job.Spec, &job.Spec)", Replace: "_ = field",
	},
	{
		Breaks: "an update is refused because Trainer spells 8 as \"8\"",
		File:   "pkg/integration/webhook/restore.go", Test: "TestRestoreFields",
		Search: "(own || trainjob.SemanticallyEqual(now, old))", Replace: "(own && trainjob.SemanticallyEqual(now, old))",
	},
	{
		Breaks: "what a user changes in spec.trainer is silently undone",
		File:   "pkg/integration/webhook/restore.go", Test: "TestRestoreFields",
		Search: "(own || trainjob.SemanticallyEqual(now, old))", Replace: "(own || !own || trainjob.SemanticallyEqual(now, old))",
	},
	{
		Breaks: "a Workload that lost its finalizer gives the quota back before the job's pods are gone",
		File:   "pkg/integration/hold.go", Test: "TestEnsureHeld",
		Search: "!remainder.Hold(wl)", Replace: "remainder.Hold(wl)",
	},
	{
		Breaks: "what MultiKueue deletes in a worker goes before its pods",
		File:   "pkg/remainder/remainder.go", Test: "TestHold",
		Search: "return IsCopy(wl) && controllerutil", Replace: "return !IsCopy(wl) && controllerutil",
	},
	{
		Breaks: "the quota of pods that are left is charged to nobody",
		File:   "pkg/integration/releasecopies.go", Test: "TestReleaseCopies",
		Search: "if state.HoldsQuota(*wl) && wl", Replace: "if !state.HoldsQuota(*wl) && wl",
	},
	{
		Breaks: "Kueue overwrites what a remainder is charged",
		File:   "pkg/integration/releasecopies.go", Test: "TestRemainderIsChargedOnceKueueHasJudgedIt",
		Search: "return reserved != nil && reserved.Reason", Replace: "return reserved == nil || reserved.Reason",
	},
	{
		Breaks: "nobody sees whether pods that are left are charged to somebody",
		File:   "pkg/integration/caches/transform.go", Test: "TestTrim",
		Search: `wl.Labels[remainder.Label] == ""`, Replace: `wl.Labels[remainder.Label] != ""`,
	},
	{
		Breaks: "what is charged for pods that are left goes before them",
		File:   "pkg/integration/remainders.go", Test: "TestRemainderGoesWithItsLastPod",
		Search: "len(remainder.PodsOf(rest, pods)) > 0", Replace: "len(remainder.PodsOf(rest, pods)) == 0",
	},
	{
		Breaks: "a TrainJob is not told what it waits for now, but what it waited for before",
		File:   "pkg/integration/jobevents/broadcast.go", Test: "TestBroadcast",
		Search: "about.FieldPath = fmt", Replace: "_ = fmt",
	},
	{
		Breaks: "a job that MultiKueue takes from a worker is over",
		File:   "pkg/integration/podsleft.go", Test: "TestCopyOfDeletedTrainJobIsNotFinished",
		Search: "return remainder.OfCopy(&wl) })", Replace: "return !remainder.OfCopy(&wl) })",
	},
	{
		Breaks: "a job that Kueue has forgotten to send waits for ever",
		File:   "pkg/integration/dispatch.go", Test: "TestJobThatNoClusterIsAskedForIsLookedAtAgain",
		Search: "case awaitsDispatch(wl):", Replace: "case !awaitsDispatch(wl):",
	},
	{
		Breaks: "a job that was taken for gone never runs",
		File:   "pkg/integration/dispatch.go", Test: "TestJobThatWasTakenForGoneQueuesAgain",
		Search: "case takenForGone(wl) &&", Replace: "case !takenForGone(wl) &&",
	},
	{
		Breaks: "a job that its user resumes in the moment of its admission runs nowhere",
		File:   "pkg/integration/reconciler.go", Spec: "runs placed although its user resumes it in the moment of its admission",
		Search: "err := j.suspend(ctx, r.env.client, false)", Replace: "err := error(nil)",
	},
	{
		Breaks: "a job that runs is stopped on the word of an old cache",
		File:   "pkg/integration/reconciler.go", Test: "TestRunningJobStaysWithinItsQuota",
		Search: "excess, err := j.excessNow(ctx, wl)", Replace: "excess, err := j.excess(ctx, wl)",
	},
	{
		Breaks: "pods are ready by the counts of the run before",
		File:   "pkg/integration/job.go", Test: "TestPodsAreNotReadyBeforeTrainerHasResumed",
		Search: "!j.ManagedExternally() && !resumed(js, &j.TrainJob)", Replace: "false",
	},
	{
		Breaks: "a job that is admitted again is judged by its last admission",
		File:   "pkg/integration/starts.go", Test: "TestEnsureStarted",
		Search: "a.since = admitted.LastTransitionTime.Unix()", Replace: "a.since = 0",
	},
	{
		Breaks: "a write goes through although somebody changed the job in between",
		File:   "pkg/integration/jobclient/client.go", Test: "TestGuardedPatch",
		Search: "jsonpatch.NewOperation(\"test\", \"/metadata/generation\", known.Generation)", Replace: "jsonpatch.NewOperation(\"test\", \"/metadata/name\", known.Name)",
	},
	{
		Breaks: "a write for a deleted job goes into another one of the same name",
		File:   "pkg/integration/jobclient/client.go", Test: "TestGuardedPatch",
		Search: "jsonpatch.NewOperation(\"test\", \"/metadata/uid\", known.UID)", Replace: "jsonpatch.NewOperation(\"test\", \"/metadata/name\", known.Name)",
	},
	{
		Breaks: "a write that a webhook refused counts as a lost race",
		File:   "pkg/integration/jobclient/client.go", Test: "TestFailedTest",
		Search: "&& !namesKind(status.Status().Details)", Replace: "&& namesKind(status.Status().Details) == namesKind(status.Status().Details)",
	},
	{
		Breaks: "on Trainer 2.2 entry and start go in one request, which Trainer refuses",
		File:   "pkg/integration/jobclient/client.go", Test: "TestSteps",
		Search: "if served >= trainjob.Trainer23 && !overrides ||", Replace: "if served >= trainjob.Trainer22 && !overrides ||",
	},
	{
		Breaks: "a start whose placement the API server dropped counts as done",
		File:   "pkg/integration/jobclient/client.go", Test: "TestWrite",
		Search: "step.sets(\"runtimePatches\") && job.Spec.RuntimePatches == nil", Replace: "step.sets(\"runtimePatches\") && job.Spec.RuntimePatches != nil && false",
	},
	{
		Breaks: "a view older than our last write is acted upon",
		File:   "pkg/integration/jobclient/expectations.go", Test: "TestExpectations",
		Search: "want.uid == job.UID && job.Generation < want.generation", Replace: "want.uid == job.UID && job.Generation > want.generation",
	},
	{
		Breaks: "a job of the same name waits for its predecessor's write",
		File:   "pkg/integration/jobclient/expectations.go", Test: "TestExpectations",
		Search: "want := e.wants[key]; want.uid == job.UID &&", Replace: "want := e.wants[key];",
	},
	{
		Breaks: "terminating pods do not count, and their quota is given away",
		File:   "pkg/integration/state/children.go", Test: "TestHasPods", Spec: "counts as active and keeps its quota until its last pod is gone",
		Search: "if j.Status.Active > 0 || ptr.Deref(j.Status.Terminating, 0) > 0 {", Replace: "if j.Status.Active > 0 {",
	},
	{
		Breaks: "a Job that is resumed counts as without pods",
		File:   "pkg/integration/state/children.go", Test: "TestHasPods",
		Search: "return !ptr.Deref(j.Spec.Suspend, false) || jobResumed(&j)", Replace: "return !ptr.Deref(j.Spec.Suspend, false)",
	},
	{
		Breaks: "a JobSet that Trainer has not suspended yet counts as stopped",
		File:   "pkg/integration/podsleft/podsleft.go", Test: "TestActive",
		Search: "js != nil && (!ptr.Deref(js.Spec.Suspend, false) || state.SaysActive(js)), nil", Replace: "js != nil && ptr.Deref(js.Spec.Suspend, false) && state.SaysActive(js), nil",
	},
	{
		Breaks: "the JobSet of another job of the same name is taken for ours",
		File:   "pkg/integration/state/workloads.go", Test: "TestJobSetIsTheJobsOwn",
		Search: "js == nil || !metav1.IsControlledBy(js, job) {", Replace: "js == nil || js.Name == \"\" {",
	},
	{
		Breaks: "an evicted Workload may still run pods",
		File:   "pkg/integration/state/workloads.go", Test: "TestMayRun",
		Search: "kueuelib.IsAdmitted(wl) && !kueuelib.IsEvicted(wl) &&", Replace: "kueuelib.IsAdmitted(wl) && (true || !kueuelib.IsEvicted(wl)) &&",
	},
	{
		Breaks: "one caller changes the list that the next one reads",
		File:   "pkg/integration/state/reader.go", Test: "TestOnce",
		Search: "o.reader.Workloads)\n	return slices.Clone(known), err", Replace: "o.reader.Workloads)\n	return known, err",
	},
	{
		Breaks: "a deactivated Workload may still run pods",
		File:   "pkg/integration/state/workloads.go", Test: "TestMayRun",
		Search: "&& kueuelib.IsActive(wl)", Replace: "&& (kueuelib.IsActive(wl) || !kueuelib.IsActive(wl))",
	},
	{
		Breaks: "a job starts on an admission that is not there any more",
		File:   "pkg/integration/live.go", Test: "TestConfirm",
		Search: "wl.UID != cached.UID || !state.MayRun(&wl) ||", Replace: "wl.UID != cached.UID ||",
	},
	{
		Breaks: "a job starts with the flavors of its former admission",
		File:   "pkg/integration/live.go", Test: "TestConfirm",
		Search: "|| !equality.Semantic.DeepEqual(wl.Status.Admission, cached.Status.Admission) {", Replace: "|| false && equality.Semantic.DeepEqual(nil, nil) {",
	},
	{
		Breaks: "somebody else's Workload of the same name lets a job run",
		File:   "pkg/integration/live.go", Test: "TestStillAdmitted",
		Search: "return metav1.IsControlledBy(&wl, job) && wl", Replace: "return (true || metav1.IsControlledBy(&wl, job)) && wl",
	},
	{
		Breaks: "a deactivation is forgotten, because the Workload is replaced",
		File:   "pkg/integration/requeue.go", Test: "TestDeactivatedWorkloadStays",
		Search: "return outcome{done: !kueuelib.IsEvicted(wl)}", Replace: "return outcome{done: false && !kueuelib.IsEvicted(wl)}",
	},
	{
		Breaks: "a queued job may leave its queue",
		File:   "pkg/integration/webhook/validate.go", Test: "TestValidator",
		Search: "queued := r.describer.Field.Has(&old.Spec)", Replace: "queued := !r.describer.Field.Has(&old.Spec)",
	},
	{
		Breaks: "a job without a queue gets an entry of ours",
		File:   "pkg/integration/webhook/defaults.go", Test: "TestDefaulter", Spec: "is left exactly as it is",
		Search: "if !managed {\n		// An entry of ours", Replace: "if managed && !managed {\n		// An entry of ours",
	},
	{
		Breaks: "a job is created running, before it has quota",
		File:   "pkg/integration/webhook/defaults.go", Test: "TestDefaulter",
		Search: "job.Spec.Suspend = ptr.To(true)\n	if job", Replace: "if job",
	},
	{
		Breaks: "a job for another cluster carries our entry there",
		File:   "pkg/integration/webhook/defaults.go", Test: "TestDefaulterHandsToMultiKueue",
		Search: "if job.ManagedExternally() {\n		// MultiKueue copies", Replace: "if job.ManagedExternally() && !job.ManagedExternally() {\n		// MultiKueue copies",
	},
	{
		Breaks: "every write of every controller is a reconcile",
		File:   "pkg/integration/enqueue.go", Test: "TestBatched",
		Search: "o.After = batchPeriod", Replace: "o.After = 0 * batchPeriod",
	},
	{
		Breaks: "the Workload of a job that went meanwhile keeps its quota",
		File:   "pkg/integration/standaside.go", Test: "TestStandAsideComesBackForWorkloadsLeft",
		Search: "len(left) == 0 {", Replace: "len(left) >= 0 {",
	},
	{
		Breaks: "admission and eviction wait behind everything else",
		File:   "pkg/integration/enqueue.go", Test: "TestDecidedFirst",
		Search: "state.MayRun(before) != state.MayRun(after)", Replace: "state.MayRun(before) == state.MayRun(after)",
	},
	{
		Breaks: "a gated pod is freed though its job is not admitted",
		File:   "pkg/integration/ungater/ungater.go", Test: "TestOnlyPodsOfAdmittedJobsAreFreed",
		Search: "if err != nil || wl == nil || !state.MayRun(wl) {\n		return nil, err\n	}\n	return job, nil", Replace: "if err != nil || wl == nil {\n		return nil, err\n	}\n	return job, nil",
	},
	{
		Breaks: "a gated pod of a suspended job is freed",
		File:   "pkg/integration/ungater/ungater.go", Test: "TestOnlyPodsOfAdmittedJobsAreFreed",
		Search: "if job.Suspended() {\n		return nil, nil", Replace: "if job.Suspended() && false {\n		return nil, nil",
	},
	{
		Breaks: "a JobSet with more pods than it is charged for runs",
		File:   "pkg/podset/excess.go", Test: "TestExcess", Spec: "snapshot was edited while it ran",
		Search: "want > ps.Count {", Replace: "want > ps.Count+100 {",
	},
	{
		Breaks: "a scaled child Job runs beyond its quota",
		File:   "pkg/podset/excess.go", Test: "TestExcess", Spec: "somebody scales one of its Jobs",
		Search: "made > ps.Count {", Replace: "made > ps.Count+100 {",
	},
	{
		Breaks: "pods run again whose quota was given back",
		File:   "pkg/podset/excess.go", Test: "TestExcess",
		Search: "running > ps.Count-r.Count {", Replace: "running > ps.Count {",
	},
	{
		Breaks: "a Job that has ended counts as running",
		File:   "pkg/podset/excess.go", Test: "TestExcess",
		Search: "if !JobEnded(&jobs[i]) {", Replace: "if JobEnded(&jobs[i]) || len(jobs) > 0 {",
	},
	{
		Breaks: "pods may ask for more than they are charged for",
		File:   "pkg/podset/excess.go", Test: "TestExcess",
		Search: "amount.Cmp(held) > 0 {", Replace: "amount.Cmp(held) > 1 {",
	},
	{
		Breaks: "a limit without a request asks for nothing",
		File:   "pkg/podset/excess.go", Test: "TestExcess",
		Search: "requests := maps.Clone(out[i].Resources.Limits)", Replace: "requests := maps.Clone(out[i].Resources.Requests)",
	},
	{
		Breaks: "a pod that may be bound at any moment holds no quota",
		File:   "pkg/integration/podsleft/podsleft.go", Test: "TestPodsLeft",
		Search: "return pod.Spec.NodeName != \"\" || len(pod.Spec.SchedulingGates) == 0", Replace: "return pod.Spec.NodeName != \"\"",
	},
	{
		Breaks: "a pod at the gate holds quota",
		File:   "pkg/integration/podsleft/podsleft.go", Test: "TestPodsLeft",
		Search: "return pod.Spec.NodeName != \"\" || len(pod.Spec.SchedulingGates) == 0", Replace: "return pod.Spec.NodeName != \"\" || pod.Name != \"\"",
	},
	{
		Breaks: "a finished job gives its quota back with a pod left",
		File:   "pkg/integration/finish.go", Test: "TestEndOfAJob",
		Search: "if !j.IsActive() {\n		j.letQuotaGo(ctx)\n", Replace: "if !j.IsActive() || held {\n		j.letQuotaGo(ctx)\n",
	},
	{
		Breaks: "a failed job is not held at the gate",
		File:   "pkg/integration/finish.go", Test: "TestEndOfAJob",
		Search: "trainer.TrainJobFailed) || j.ManagedExternally() {\n		return true, nil", Replace: "trainer.TrainJobFailed) || !j.ManagedExternally() {\n		return true, nil",
	},
	{
		Breaks: "a job gives its quota back while Trainer resumes it",
		File:   "pkg/integration/jobclient/resume.go", Test: "TestStoppedBeforeResume", Spec: "keeps its quota until that has come to nothing",
		Search: "start.stopped = e.clock.Now()", Replace: "start.stopped = time.Unix(0, 0)",
	},
	{
		Breaks: "a start by a former process is forgotten",
		File:   "pkg/integration/podsleft/resumegrace.go", Test: "TestStoppedJobIsActiveUntilTrainerAnswered",
		Search: "stopped = p.Expectations.LedSince()", Replace: "stopped = time.Time{}",
	},
	{
		Breaks: "a JobSet that is suspended answers a start",
		File:   "pkg/integration/podsleft/resumegrace.go", Test: "TestJobSetThatRunsIsTrainersAnswer",
		Search: "js != nil && !ptr.Deref(js.Spec.Suspend, false)", Replace: "js != nil && !ptr.Deref(nil, js == nil)",
	},
	{
		Breaks: "an old view of a Workload is written by again and again",
		File:   "pkg/integration/jobclient/versions.go", Test: "TestOutdatedVersionsAreLeftAlone",
		Search: "return true\n	}\n	delete(e.old, job)", Replace: "return false\n	}\n	delete(e.old, job)",
	},
	{
		Breaks: "a view of a Workload is old for ever",
		File:   "pkg/integration/jobclient/versions.go", Test: "TestOutdatedVersionsAreLeftAlone",
		Search: "e.clock.Since(at) >= outdatedFor ||", Replace: "e.clock.Since(at) < 0 ||",
	},
	{
		Breaks: "quota is given back before PodsReady is reset",
		File:   "pkg/integration/podsready.go", Test: "TestEvictionResetsPodsReadyBeforeItFreesQuota",
		Search: "j.stopping = true", Replace: "j.stopping = false",
	},
	{
		Breaks: "a JobSet that asks for too much is replaced in a loop",
		File:   "pkg/integration/excess.go", Test: "TestDriftedJobSetIsReplacedOnce",
		Search: "> renewEvery {", Replace: "> 0*renewEvery {",
	},
	{
		Breaks: "PodsReady is written again by a view without it",
		File:   "pkg/integration/podsready/podsready.go", Test: "TestReportIsWrittenByAnOldViewFromThenOn",
		Search: "r.Expectations.Outdate(key, jobclient.VersionsOf([]kueue.Workload{*wl}))", Replace: "r.Expectations.Outdate(key, jobclient.VersionsOf(nil))",
	},
	{
		Breaks: "a preempted job is resumed by its user",
		File:   "pkg/integration/webhook/defaults.go", Test: "TestJobThatGivesItsQuotaBackIsNotResumed", Spec: "gives way although its user resumes it again and again",
		Search: "if !state.StoppedSince(wl).IsZero() {", Replace: "if state.StoppedSince(wl).Year() == 0 {",
	},
	{
		Breaks: "a certificate that has expired is trusted on",
		File:   "pkg/certificates/bundle.go", Test: "TestWithAuthority",
		Search: "now.After(certificate.NotAfter)", Replace: "certificate.Raw == nil",
	},
	{
		Breaks: "every TrainJob needs the manager",
		File:   "pkg/webhookscope/scope.go", Test: "TestConditions",
		Search: "if !every {", Replace: "if every {",
	},
	{
		Breaks: "a view from before a start counts as a stop",
		File:   "pkg/integration/jobclient/resume.go", Test: "TestStoppedBeforeResume",
		Search: "|| job.Generation <= start.generation {", Replace: "|| job.Generation < 0 {",
	},
	{
		Breaks: "a start that was refused counts as one",
		File:   "pkg/integration/jobclient/resume.go", Test: "TestStoppedBeforeResume",
		Search: "		} else {\n			delete(e.unanswered, key)", Replace: "		} else if was {\n			delete(e.unanswered, key)",
	},
}
