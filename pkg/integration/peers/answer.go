// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// inTreeEvery is how often the manager looks whether the in-tree integration is active.
	inTreeEvery = 30 * time.Second
	// inTreeRetry is how soon it looks again when it is: what that leaves is taken over soon.
	inTreeRetry = 2 * time.Second
	// inTreeFirst is how soon it looks again after the first look without an answer. The
	// manager's own webhooks have to be reachable for one, which takes a moment at a start.
	inTreeFirst = 200 * time.Millisecond
	// inTreeSilent is how long there may be no answer before people are told.
	inTreeSilent = 30 * time.Second
)

// inTreeView is what the looks for the in-tree integration have found so far. An answer
// holds until there is another one.
type inTreeView struct {
	// answer is one of the words of pkg/metrics. Empty: there was none yet, which is not "off": two integrations would fight.
	answer string
	// silentSince is when the first of the looks was that have had no answer since the
	// last one; failed counts them, and err is the reason of the last.
	silentSince time.Time
	failed      int
	err         error
}

// heard returns the view after a look that was answered.
func (v inTreeView) heard(active bool) inTreeView {
	if active {
		return inTreeView{answer: metrics.InTreeActive}
	}
	return inTreeView{answer: metrics.InTreeOff}
}

// unheard returns the view after a look at this time that was not answered.
func (v inTreeView) unheard(err error, now time.Time) inTreeView {
	if v.failed == 0 {
		v.silentSince = now
	}
	v.failed++
	v.err = err
	return v
}

// silent reports whether there has been no answer for long.
func (v inTreeView) silent(now time.Time) bool {
	return v.failed > 0 && now.Sub(v.silentSince) >= inTreeSilent
}

// wait returns the time until the next look. One without an answer is repeated soon, and
// up to every two seconds before people are told; after that, less and less often.
func (v inTreeView) wait(now time.Time) time.Duration {
	switch {
	case v.failed == 0 && v.answer == metrics.InTreeActive:
		return inTreeRetry
	case v.failed == 0:
		return inTreeEvery
	}
	most := inTreeRetry
	if v.silent(now) {
		most = inTreeEvery
	}
	return min(inTreeFirst<<min(v.failed-1, 10), most)
}

var (
	unreachableWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	refusingWebhook    = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
)

// inTreeUnknownRemedy says what to do about a look that was not answered, which is a dry run in the manager's own namespace.
func inTreeUnknownRemedy(namespace string, err error) string {
	text := err.Error()
	if found := unreachableWebhook.FindStringSubmatch(text); found != nil {
		return fmt.Sprintf("look at the Service and the pods behind webhook %s", found[1])
	}
	switch {
	case errors.Is(err, trainjob.ErrNoRuntime):
		return fmt.Sprintf("create a ClusterTrainingRuntime, or a TrainingRuntime in namespace %s", namespace)
	case errors.Is(err, errSuspendsAll):
		return fmt.Sprintf("have the policy or webhook that suspends TrainJobs leave namespace %s out", namespace)
	case strings.Contains(text, "exceeded quota"):
		return fmt.Sprintf("take TrainJobs out of the ResourceQuotas of namespace %s", namespace)
	}
	if found := refusingWebhook.FindStringSubmatch(text); found != nil {
		return fmt.Sprintf("let webhook %s accept such a TrainJob in namespace %s, or add a ClusterTrainingRuntime that it accepts", found[1], namespace)
	}
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("let the manager's ServiceAccount create trainjobs in namespace %s, as config/rbac has it, and let no policy refuse that", namespace)
	}
	return "look at the API server's answer"
}
