package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestNothingIsForbidden lets the controllers do what they do with no other rights than those of the manifests: two
// replicas that elect a leader, disruptions that begin, change, pause, expire and end, and a DisruptionCron.
func TestNothingIsForbidden(t *testing.T) {
	// A request that is forbidden is seen.
	to, forbidden := account.Recorded()
	c := must(client.New(to, client.Options{Scheme: newScheme()}))
	if err := c.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) || len(forbidden.List()) != 1 {
		t.Fatalf("the account may list secrets: %v, %v", err, forbidden.List())
	}

	f := newFixture(t)
	f.processes(3)
	o := options()
	o.LeaderElection = true
	earlier := map[types.UID]bool{}
	var before corev1.EventList
	if err := f.List(t.Context(), &before, client.InNamespace("trommel-chaos")); err != nil {
		t.Fatal(err)
	}
	for _, e := range before.Items {
		earlier[e.UID] = true
	}
	leads := func(leaders int) {
		t.Helper()
		clustertest.Eventually(t, func(ctx context.Context) error {
			var list corev1.EventList
			if err := f.List(ctx, &list, client.InNamespace("trommel-chaos")); err != nil {
				return err
			}
			var messages []string
			for _, e := range list.Items {
				if !earlier[e.UID] && e.Reason == "LeaderElection" && strings.Contains(e.Message, "became leader") {
					messages = append(messages, e.Message)
				}
			}
			if len(messages) != leaders {
				return fmt.Errorf("events of %d leaders, want %d: %v", len(messages), leaders, messages)
			}
			return nil
		})
	}
	stop := start(t, account.Config(t), o)
	leads(1)
	d := f.disrupt("life", hangs(nil))
	f.phase(d, chaos.Injected)
	patch := client.MergeFrom(d.DeepCopy())
	two := intstr.FromInt32(2)
	d.Spec.Count = &two
	if err := f.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	f.await(d, "on two targets", func(d *chaos.Disruption) bool {
		return d.Status.Counts.Injected == 2 && len(d.Status.Injections) == 2
	})
	// Another replica takes over.
	stop()
	start(t, account.Config(t), o)
	leads(2)
	f.end(d)

	// A simulated node as a target, which fails and comes back.
	d = f.disrupt("node", chaos.DisruptionSpec{
		Level: chaos.LevelNode, Selector: map[string]string{corev1.LabelHostname: "node-1"},
		Kinds: chaos.Kinds{NodeFailure: &chaos.NodeFailure{}},
	})
	f.phase(d, chaos.Injected)
	f.end(d)
	// A pulse until the end; it is deleted when it is over. A busy machine sees one of three pauses.
	d = f.disrupt("pulse", hangs(func(s *chaos.DisruptionSpec) {
		s.Duration = duration(12 * time.Second)
		s.Pulse = &chaos.Pulse{ActiveDuration: *duration(2 * time.Second), DormantDuration: *duration(2 * time.Second)}
	}))
	f.phase(d, chaos.PausedInjected)
	f.gone(d)

	cron := &chaos.DisruptionCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "cron"},
		Spec: chaos.DisruptionCronSpec{Schedule: "@every 1s", Disruption: hangs(func(s *chaos.DisruptionSpec) {
			s.Duration = duration(2 * time.Second)
		})},
	}
	if err := f.Create(t.Context(), cron); err != nil {
		t.Fatal(err)
	}
	// One that it skips, because the one before has not ended, leaves an event.
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(cron), cron); err != nil {
			return err
		}
		if h := cron.Status.History; len(h) < 2 || h[0].Skipped == "" {
			return fmt.Errorf("history %+v", h)
		}
		return nil
	})
	if err := f.Delete(t.Context(), cron); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		var list chaos.DisruptionList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d disruptions of the cron are left (%w)", len(list.Items), err)
		}
		return nil
	})
}
