// SPDX-License-Identifier: Apache-2.0

// Package quantity knows which resources a container asks for, and which it can ask for.
package quantity

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Wrong is something in the resources of a container that the API server refuses.
type Wrong struct {
	// List is "limits" or "requests".
	List     string
	Name     corev1.ResourceName
	Quantity resource.Quantity
	// Why says what is wrong and what to do.
	Why string
	// NeedsMore is set where nothing is wrong but that there is no limit, or nothing beside huge pages.
	NeedsMore bool
}

// Check reports what a container cannot ask for, by the rules of the API server
// (validateResourceRequirements in pkg/apis/core/validation of k8s.io/kubernetes, which is
// no library): it stores a JobSet that breaks them, but takes no Job and no pod of it.
func Check(resources *corev1.ResourceRequirements) []Wrong {
	var wrong []Wrong
	for _, name := range slices.Sorted(maps.Keys(resources.Limits)) {
		amount := resources.Limits[name]
		if why := impossible(name, amount); why != "" {
			wrong = append(wrong, Wrong{List: "limits", Name: name, Quantity: amount, Why: why})
		} else if hugePages(name) && !ordinary(resources.Limits) && !ordinary(resources.Requests) {
			wrong = append(wrong, Wrong{List: "limits", Name: name, Quantity: amount, Why: "Kubernetes gives no huge pages to a container without cpu or memory: ask for some, too", NeedsMore: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(resources.Requests)) {
		amount := resources.Requests[name]
		_, limited := resources.Limits[name]
		if why := impossible(name, amount); why != "" {
			wrong = append(wrong, Wrong{List: "requests", Name: name, Quantity: amount, Why: why})
		} else if why := besideLimit(name, amount, resources.Limits); why != "" {
			wrong = append(wrong, Wrong{List: "requests", Name: name, Quantity: amount, Why: why, NeedsMore: !limited})
		}
	}
	return wrong
}

// Asked returns the resources that the containers and init containers of a pod ask for. Zero amounts do not count.
func Asked(pod *corev1.PodSpec) sets.Set[corev1.ResourceName] {
	asked := sets.New[corev1.ResourceName]()
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, amounts := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name, amount := range amounts {
				if !amount.IsZero() {
					asked.Insert(name)
				}
			}
		}
	}
	return asked
}

// most is the largest amount of which Kubernetes and Kueue count the thousandth parts.
const most = math.MaxInt64 / 1000

// impossible returns why nobody can have such an amount, or nothing.
func impossible(name corev1.ResourceName, amount resource.Quantity) string {
	if why := unknownResource(name); why != "" {
		return why
	}
	if amount.Sign() < 0 {
		return "an amount must not be negative"
	}
	if amount.CmpInt64(most) > 0 {
		return fmt.Sprintf("it must not be more than %d", most)
	}
	if extended(name) && amount.MilliValue()%1000 != 0 {
		return "it must be a whole number: Kubernetes divides no device; where parts are offered, they have a name of their own"
	}
	if hugePages(name) && !wholePages(name, amount) {
		return "it must be whole pages of the size in the name, as 4Mi of hugepages-2Mi is"
	}
	return ""
}

// besideLimit returns what is wrong with a request beside the limits, or nothing.
func besideLimit(name corev1.ResourceName, request resource.Quantity, limits corev1.ResourceList) string {
	limit, limited := limits[name]
	switch {
	case !limited && !overcommitted(name):
		return "it needs a limit of the same amount: Kubernetes takes no pod without; set the limit, the request may be left out"
	case limited && !overcommitted(name) && request.Cmp(limit) != 0:
		return fmt.Sprintf("it must be equal to the limit, which is %s: leave the request out, or set both to the same amount", limit.String())
	case limited && request.Cmp(limit) > 0:
		return fmt.Sprintf("it must not be more than the limit, which is %s", limit.String())
	}
	return ""
}

// unknownResource returns why no container can ask for a resource of this name, or nothing.
func unknownResource(name corev1.ResourceName) string {
	if errs := validation.IsQualifiedName(string(name)); len(errs) > 0 {
		return strings.Join(errs, ", ")
	}
	known := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	// A ResourceQuota has "requests." before the name.
	if strings.Contains(string(name), "/") && !(extended(name) && strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)) || hugePages(name) || slices.Contains(known, name) {
		return ""
	}
	return "Kubernetes knows no such resource, and one of a device has a domain before its name, as nvidia.com/gpu has"
}

// extended reports whether a resource is a device's: it has a domain, which is not
// Kubernetes' own.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// wholePages reports whether an amount can be had in pages of the size that the name says.
func wholePages(name corev1.ResourceName, amount resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && size.Sign() > 0 && size.MilliValue()%1000 == 0 && amount.Value()%size.Value() == 0
}

// ordinary reports whether there is something of cpu or memory.
func ordinary(amounts corev1.ResourceList) bool {
	_, cpu := amounts[corev1.ResourceCPU]
	_, memory := amounts[corev1.ResourceMemory]
	return cpu || memory
}

// InBytes reports whether amounts of a resource are bytes.
func InBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || hugePages(name)
}

// overcommitted reports whether pods may request less of a resource than they may use.
func overcommitted(name corev1.ResourceName) bool { return !extended(name) && !hugePages(name) }
