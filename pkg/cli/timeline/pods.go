// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// podTimes are what is known of a pod, which may be gone: when it came to which milestone.
type podTimes struct {
	name, job string
	at        map[milestone]time.Time
	// startable is when containers could start that are restarted so often that the pod does not tell of their first start.
	startable time.Time
}

// podSteps tells of the pods of each Job and run together: there may be a thousand. Those that take the place of others are
// told of apart: the run does not wait for them, but for the first that runs in each place.
func podSteps(f *Facts) []Step {
	type group struct {
		job      string
		run, try int
	}
	groups, tries := map[group][]podTimes{}, map[string][]podTimes{}
	var order []group
	for _, pod := range podsOf(f) {
		n, place := run(f, pod.at[podsMade]), pod.name
		if random := ofJob.FindStringSubmatch(strings.TrimPrefix(pod.name, pod.job)); random != nil {
			place = strings.TrimSuffix(place, random[1])
		}
		place = fmt.Sprintf("%s %d", place, n)
		key := group{pod.job, n, len(tries[place])}
		tries[place] = append(tries[place], pod)
		if first := tries[place][0].at; first[podsRun].IsZero() {
			first[podsRun] = pod.at[podsRun]
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], pod)
	}
	var steps []Step
	for _, key := range order {
		steps = append(steps, groupSteps(groups[key], key.try > 0)...)
	}
	return steps
}

// run counts the starts before a time: pods of a former run are others.
func run(f *Facts, at time.Time) int {
	return len(kueuelib.Pick(f.Events, func(e *corev1.Event) bool {
		return e.Reason == jobevents.ReasonStarted && e.InvolvedObject.Kind == trainjob.GVK.Kind && firstTime(e).Before(at.Add(time.Second))
	}))
}

// groupSteps are no milestones where the pods take the place of others.
func groupSteps(pods []podTimes, again bool) []Step {
	object := fmt.Sprintf("%s of Job %s", show.Count(len(pods), "pod"), pods[0].job)
	var steps []Step
	for _, of := range []struct {
		actor     Actor
		milestone milestone
		what      string
	}{
		{JobController, podsMade, "made"}, {Scheduler, podsBound, "bound"}, {Kubelet, podsRun, "started"}, {Kubelet, podsEnded, "ended"},
	} {
		var times []time.Time
		for _, pod := range pods {
			if t := pod.at[of.milestone]; !t.IsZero() {
				times = append(times, t)
			}
		}
		if len(times) == 0 {
			continue
		}
		first, last := slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
		s := Step{Time: first, Actor: of.actor, Object: object, Step: of.what + " them", milestone: of.milestone}
		if again {
			s.milestone = noted
		}
		if len(pods) == 1 {
			s.Step = of.what + " it"
		}
		if last.After(first) {
			s.Until = &last
		}
		if len(times) < len(pods) {
			// Not all have come so far: that is no milestone.
			s.Step, s.milestone = fmt.Sprintf("%s %d of them", of.what, len(times)), noted
		}
		steps = append(steps, s)
	}
	return steps
}

// podMilestones are what events of pods tell of, by their reasons.
var podMilestones = map[string]milestone{"Scheduled": podsBound, "Started": podsRun, "Killing": podsEnded}

// podsOf joins what pods tell with what events tell of those that are gone, by name.
func podsOf(f *Facts) []podTimes {
	known := map[string]*podTimes{}
	of := func(name string) *podTimes {
		if known[name] == nil {
			known[name] = &podTimes{name: name, job: jobOf(f, name), at: map[milestone]time.Time{}}
		}
		return known[name]
	}
	for i := range f.Pods {
		of(f.Pods[i].Name).read(&f.Pods[i])
	}
	for i := range f.Events {
		e := &f.Events[i]
		if name, made := strings.CutPrefix(e.Message, "Created pod: "); made && e.InvolvedObject.Kind == "Job" {
			of(name).job = e.InvolvedObject.Name
			of(name).note(podsMade, e)
		}
		if m, tells := podMilestones[e.Reason]; tells && e.InvolvedObject.Kind == "Pod" {
			of(e.InvolvedObject.Name).note(m, e)
		}
	}
	var pods []podTimes
	for _, p := range known {
		if p.job != "" {
			p.at[podsRun] = later(p.at[podsRun], p.startable)
			pods = append(pods, *p)
		}
	}
	slices.SortFunc(pods, func(a, b podTimes) int {
		return cmp.Or(a.at[podsMade].Compare(b.at[podsMade]), cmp.Compare(a.name, b.name))
	})
	return pods
}

// note takes the time of an event where the pod does not tell as much: to the second, and an event of that second is better.
func (p *podTimes) note(m milestone, e *corev1.Event) {
	told := firstTime(e)
	if at := p.at[m]; at.IsZero() || exact(told) && told.Truncate(time.Second).Equal(at) {
		p.at[m] = told
	}
}

// ofJob is what the Job controller puts behind a Job's name: index and five random characters.
var ofJob = regexp.MustCompile(`^-\d+(-[a-z0-9]{5})$`)

// jobOf finds the Job of a pod by its label where it is there, and by its name,
// JOB-INDEX-RANDOM, where it is gone; empty for the pods of others.
func jobOf(f *Facts, name string) string {
	for i := range f.Pods {
		if f.Pods[i].Name == name {
			return f.Pods[i].Labels[batchv1.JobNameLabel]
		}
	}
	for i := range f.Jobs {
		if rest, is := strings.CutPrefix(name, f.Jobs[i].Name); is && ofJob.MatchString(rest) {
			return f.Jobs[i].Name
		}
	}
	return ""
}

func (p *podTimes) read(pod *corev1.Pod) {
	p.at[podsMade] = pod.CreationTimestamp.Time
	since := map[corev1.PodConditionType]time.Time{}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			since[c.Type] = c.LastTransitionTime.Time
		}
	}
	p.at[podsBound] = since[corev1.PodScheduled]
	for _, status := range pod.Status.ContainerStatuses {
		if s := status.State.Terminated; s != nil {
			p.at[podsEnded] = later(p.at[podsEnded], s.FinishedAt.Time)
		}
		first, before := status.State, status.RestartCount
		switch {
		case first.Waiting != nil:
			// For a restart: the kubelet has moved the last run there.
			first = status.LastTerminationState
		case before > 0:
			first, before = status.LastTerminationState, before-1
		}
		switch {
		case before > 0 || status.RestartCount > 0 && first.Terminated == nil:
			p.startable = since[corev1.PodInitialized]
		case first.Running != nil:
			p.at[podsRun] = later(p.at[podsRun], first.Running.StartedAt.Time)
		case first.Terminated != nil:
			p.at[podsRun] = later(p.at[podsRun], first.Terminated.StartedAt.Time)
		}
	}
}
