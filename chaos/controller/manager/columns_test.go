package manager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestColumns is about what kubectl get shows of a disruption that one of its two targets does not support, and of a
// DisruptionCron.
func TestColumns(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	f.running(f.pod("simulated", "node-1"))
	d := f.disrupt("columns", hangs(func(s *chaos.DisruptionSpec) { s.CPUPressure = &chaos.CPUPressure{} }))
	f.await(d, "in part", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.PartiallyInjected && d.Status.Counts.Injected == 1 &&
			len(d.Status.Injections) == 4 &&
			d.Status.Injections[1].State == chaos.InjectionUnsupported &&
			d.Status.Injections[3].State == chaos.InjectionUnsupported
	})
	to, list := must(shared.RESTConfig("")), "/apis/"+chaos.GroupVersion.String()+"/namespaces/"+f.namespace+"/"
	want := [][]string{
		{"Name", "Status", "Kinds", "Injected", "Desired", "Dry-Run", "Ends", "Message", "Age"},
		{"columns", "PartiallyInjected", "apiFault,cpuPressure", "1", "2", "nil",
			d.Status.EndsAt.UTC().Format(time.RFC3339),
			"apiFault on simulated: unsupported: not supported on the process node: the pod runs on the simulated " +
				"node " +
				"node-1, so it has no process and no connections", "AGE"},
	}
	if diff := cmp.Diff(want, clustertest.Table(t, to, list+"disruptions")); diff != "" {
		t.Errorf("disruptions (-want +got)\n%s", diff)
	}
	f.end(d)

	cron := &chaos.DisruptionCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "columns"},
		Spec:       chaos.DisruptionCronSpec{Schedule: "@every 1s", Disruption: hangs(nil)},
	}
	later := cron.DeepCopy()
	later.Name, later.Spec.Schedule, later.Spec.Suspend = "suspended", "0 3 * * *", true
	for _, c := range []*chaos.DisruptionCron{cron, later} {
		if err := f.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(cron), cron)
		if err == nil && cron.Status.LastScheduleTime == nil {
			err = errors.New("it has not been due")
		}
		return err
	})
	want = [][]string{
		{"Name", "Schedule", "Suspend", "Last", "Age"},
		{"columns", "@every 1s", "nil", "AGE", "AGE"},
		{"suspended", "0 3 * * *", "true", "nil", "AGE"},
	}
	if diff := cmp.Diff(want, clustertest.Table(t, to, list+"disruptioncrons")); diff != "" {
		t.Errorf("crons (-want +got)\n%s", diff)
	}
	if err := f.Delete(t.Context(), cron); err != nil {
		t.Fatal(err)
	}
}
