// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What light uses in an hour counts more then than the two GPUs that heavy had consumed, of which half has faded.
func TestWhoHasConsumedLessGoesFirst(t *testing.T) {
	g := &game{}
	g.Flavors = []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: pool}}}
	g.queue("a", "", "4", func(spec *kueue.ClusterQueueSpec) {
		spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	})
	light, heavy := g.LocalQueues[0], g.LocalQueues[0]
	light.Name, heavy.Name = "light", "heavy"
	heavy.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.LocalQueueAdmissionFairSharingStatus{
		ConsumedResources: corev1.ResourceList{gpu.Whole: resource.MustParse("2")},
	}}
	g.LocalQueues = []kueue.LocalQueue{light, heavy}
	world := g.World()
	world.AdmissionFairSharing = &configapi.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: 5 * time.Minute},
	}
	b := &board{t: t, now: time.Unix(1000, 0)}
	b.Player = expect.Must(scheduler.NewPlayer(t.Context(), world, b.now, nil))(t)
	for n, name := range []string{"heavy-1", "light-1", "light-2"} {
		wl := job(name, name[:len("heavy")], 4, 0)
		wl.CreationTimestamp = metav1.NewTime(time.Unix(int64(n), 0))
		expect.NoError(t, b.Add(t.Context(), wl))
	}
	b.settle()
	b.SetTime(t.Context(), b.now.Add(time.Hour))
	b.Remove(t.Context(), key("light-1"))
	b.wake()
	expect.Same(t, "Unexpected moves", []string{"Admitted light-1", "Admitted heavy-1"}, b.moves)
}
