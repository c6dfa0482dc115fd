// SPDX-License-Identifier: Apache-2.0

package version

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Part is a manager in the cluster.
type Part struct {
	Name string `json:"name"`
	// Version is empty where nothing that may be read tells it.
	Version string `json:"version,omitempty"`
	// Generation is that of the TrainJobs that Trainer serves: 2.1, 2.2 or 2.3. Empty where
	// its CRD may not be read.
	Generation string `json:"generation,omitempty"`
	// Wants is what kueue-trainer, or Trainer of JobSet, is made for.
	Wants string `json:"wants,omitempty"`
	// Missing is set where it is not installed.
	Missing bool `json:"missing,omitempty"`

	// unseen is set where the user may not know whether it is installed.
	unseen bool
}

// Together is the verdict.
type Together string

// The verdicts.
const (
	// Yes: all that matters is known, and in order.
	Yes Together = "Yes"
	// No: see Problems.
	No Together = "No"
	// Unknown: nothing is known to be wrong, and not all is known.
	Unknown Together = "Unknown"
)

// Problem is why they do not go together.
type Problem struct {
	// Breaks is set where TrainJobs cannot be queued at all.
	Breaks  bool   `json:"breaks"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// jobSets are the releases of JobSet that the releases of Trainer require.
var jobSets = map[string]string{
	trainjob.Trainer21.String(): "0.10",
	trainjob.Trainer22.String(): "0.11",
	trainjob.Trainer23.String(): "0.12",
}

// judge says of every part what it has to be, and whether it is.
func judge(r *Report) {
	generation := ""
	for _, p := range r.Parts {
		if has := cluster.MinorOf(p.Version); p.Name == cluster.Trainer.Name && !newer(has) {
			generation = cmp.Or(p.Generation, has)
		}
	}
	// The release that a part has to be of; empty where any will do, or nobody knows.
	wants := map[string]string{
		cluster.Kueue.Name: cluster.KueueMinor, cluster.Trainer.Name: "2.1 to 2.3",
		cluster.JobSet.Name: jobSets[generation], cluster.Manager.Name: cluster.MinorOf(r.Plugin.Version),
	}
	r.Together = Yes
	for i := range r.Parts {
		p := &r.Parts[i]
		p.Wants = wants[p.Name]
		if problem := problemOf(p); problem != nil {
			r.Together, r.Problems = No, append(r.Problems, *problem)
		} else if r.Together == Yes && !p.known() {
			r.Together = Unknown
		}
	}
}

// known reports whether enough is known of a part to say that it goes with the others.
func (p *Part) known() bool {
	if p.Name == cluster.Trainer.Name {
		return p.Generation != "" || cluster.MinorOf(p.Version) != ""
	}
	return !p.unseen && (cluster.MinorOf(p.Version) != "" || p.Wants == "")
}

func problemOf(p *Part) *Problem {
	switch has := cluster.MinorOf(p.Version); {
	case p.Missing:
		return &Problem{Breaks: true, Message: fmt.Sprintf("%s is not installed", p.Name), Remedy: "kubectl trainjob doctor -o wide says what follows from that, and what to do"}
	case p.Name == cluster.Trainer.Name:
		return trainerProblem(p, has)
	case p.Wants == "" || has == "" || has == p.Wants:
		return nil
	case p.Name == cluster.Manager.Name:
		return &Problem{Message: fmt.Sprintf("kueue-trainer is %s, and this plugin of %s", p.Version, p.Wants), Remedy: "use the plugin of the release that is installed"}
	case p.Name == cluster.JobSet.Name:
		return &Problem{Message: fmt.Sprintf("JobSet is %s, and Trainer requires %s", p.Version, p.Wants), Remedy: "install JobSet " + p.Wants}
	default:
		return &Problem{Message: fmt.Sprintf("%s is %s, and kueue-trainer is made for %s and tested with it only", p.Name, p.Version, p.Wants), Remedy: "kubectl trainjob doctor says more, and how to install another"}
	}
}

// trainerProblem compares the release of Trainer's controller with what the CRD, which is
// installed with it, serves. Of a release that is newer than all that are known the CRD counts as
// the newest.
func trainerProblem(p *Part, has string) *Problem {
	install := "install Trainer " + p.Wants
	known := jobSets[has] != ""
	switch {
	case p.Generation == trainjob.TrainerVersion(0).String(), p.Generation == "" && has != "" && !known && older(has):
		return &Problem{Breaks: true, Message: "Trainer is of a generation that kueue-trainer does not know", Remedy: install}
	case has == "" || has == p.Generation || p.Generation == "" && known:
		return nil
	case newer(has):
		return &Problem{Message: fmt.Sprintf("Trainer is %s, and kueue-trainer is made for %s and tested with them only", p.Version, p.Wants), Remedy: install}
	}
	return &Problem{
		Message: fmt.Sprintf("Trainer's controller is %s, and its CRD serves TrainJobs of %s: one of them was not upgraded", p.Version, p.Generation),
		Remedy:  fmt.Sprintf("install all of one release of Trainer, %s", p.Wants),
	}
}

// newer reports whether a minor release came after the last that is known.
func newer(minor string) bool { return minor != "" && jobSets[minor] == "" && !older(minor) }

// older reports whether a minor release came before the first that is known.
func older(minor string) bool {
	return version.MustParseGeneric(minor).LessThan(version.MustParseGeneric(trainjob.Trainer21.String()))
}
