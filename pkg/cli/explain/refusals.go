// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// refusedMaking are the events of those who could not make something, from the TrainJob to the
// pods. The latest whose product is missing tells what holds the job.
var refusedMaking = []refusal{
	{"TrainJobResourcesCreationFailed", "JobSetRefused", "Trainer", "JobSet"},
	{"JobCreationFailed", "JobsRefused", "JobSet", "Jobs"},
	{"HeadlessServiceCreationFailed", "ServiceRefused", "JobSet", "Service"},
	{"PVCCreationFailed", "VolumeClaimRefused", "JobSet", "volume claims"},
	{"FailedCreate", "PodsRefused", "the Job controller", "pods"},
}

type refusal struct{ event, reason, who, what string }

// unmade tells who could not make what of the job, and why; nil where nobody has said so in
// the present attempt to start. Kinds are those that are missing, by their words in
// refusedMaking.
func (f *Facts) unmade(kinds ...string) *State {
	for i := range f.Warnings {
		told := &f.Warnings[i]
		at := slices.IndexFunc(refusedMaking, func(r refusal) bool { return r.event == told.Reason && slices.Contains(kinds, r.what) })
		if at < 0 || eventTime(told).Before(f.begun()) {
			continue
		}
		r := refusedMaking[at]
		s := &State{Reason: r.reason, Stuck: true, Cause: told.Message,
			Message: fmt.Sprintf("%s cannot make its %s: %s", r.who, r.what, told.Message),
			Remedy:  "change what the message names: the runtime or a patch of the job, or who refuses it, and it is tried again; what is in spec.trainer takes another job",
		}
		if set := f.ofTrainer(told.Message); set != "" {
			s.Remedy = fmt.Sprintf("create the job again with another %s, which the message names and nobody can change", set)
		}
		if strings.Contains(told.Message, "exceeded quota") {
			s.Remedy = "raise the ResourceQuota that the message names: it has less in all than one pod asks for"
			if mayEnd(told.Message) {
				s.Stuck, s.Remedy = false, "wait until others in the namespace have ended, or raise the ResourceQuota that the message names"
			}
		}
		return s
	}
	return nil
}

// inJob are fields of a Job or pod that Trainer may have taken from spec.trainer.
var inJob = regexp.MustCompile(`spec\.(parallelism|completions|containers\[(\d+)\]\.(image|command|args|env|resources))`)

// ofTrainer names the field of spec.trainer that a message of the API server is about; empty where the
// job does not set it.
func (f *Facts) ofTrainer(message string) string {
	found := inJob.FindStringSubmatch(message)
	if found == nil || f.Job.Spec.Trainer == nil || f.JobSet == nil {
		return ""
	}
	if found[2] == "" {
		if f.Job.Spec.Trainer.NumNodes == nil {
			return ""
		}
		return "spec.trainer.numNodes"
	}
	at, _ := strconv.Atoi(found[2]) // The expression takes digits alone.
	ofNodes := slices.ContainsFunc(f.JobSet.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		containers := rj.Template.Spec.Template.Spec.Containers
		return at < len(containers) && containers[at].Name == constants.Node
	})
	of := f.Job.Spec.Trainer
	sets := map[string]bool{
		"image": of.Image != nil, "command": of.Command != nil, "args": of.Args != nil, "env": of.Env != nil, "resources": of.ResourcesPerNode != nil,
	}
	if !ofNodes || !sets[found[3]] {
		return ""
	}
	return "spec.trainer." + strings.Replace(found[3], "resources", "resourcesPerNode", 1)
}

// unschedulable names what the scheduler says in a word of its own, where there is one.
func unschedulable(message string) (reason, remedy string) {
	switch {
	case strings.Contains(message, "persistentvolumeclaim") && strings.Contains(message, "not found"):
		return "VolumeClaimMissing", "create the PersistentVolumeClaim that the message names in the namespace of the job, or take the volume out of the runtime or patch"
	case strings.Contains(message, "unbound immediate PersistentVolumeClaims"):
		return "VolumeClaimUnbound", "see why the PersistentVolumeClaims of the namespace are not bound: kubectl describe pvc"
	case strings.Contains(message, "Too many pods"):
		return tooManyPods, "wait until pods on these nodes have ended, or raise maxPods of their kubelets; pods in coveredResources of the ClusterQueue has Kueue count them"
	}
	return corev1.PodReasonUnschedulable, "the quota is more than the nodes have room for: kubectl trainjob pools shows both"
}

// exceeded are the three lists of what a ResourceQuota says.
var exceeded = regexp.MustCompile(`requested: (.*), used: .*, limited: ([^ ]*)`)

// mayEnd reports whether what exceeds a ResourceQuota would fit when others have ended.
func mayEnd(message string) bool {
	lists := exceeded.FindStringSubmatch(message)
	if lists == nil {
		return true
	}
	limits := amountsIn(lists[2])
	for name, asked := range amountsIn(lists[1]) {
		if limit, ok := limits[name]; ok && asked.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}

// amountsIn reads "pods=1,requests.cpu=2".
func amountsIn(list string) map[string]resource.Quantity {
	amounts := map[string]resource.Quantity{}
	for part := range strings.SplitSeq(list, ",") {
		name, amount, _ := strings.Cut(part, "=")
		if q, err := resource.ParseQuantity(amount); err == nil {
			amounts[name] = q
		}
	}
	return amounts
}
