package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// mostEvents is the maximum number of events in a finding, newest last.
const mostEvents = 8

// eventsTimeout limits the time for reading the events that a finding lists in addition to the state.
const eventsTimeout = 3 * time.Second

var eventType = objects.Type{Resource: corev1.SchemeGroupVersion.WithResource("events"),
	Kind: corev1.SchemeGroupVersion.WithKind("Event"), Namespaced: true}

// events lists the events since the given time about the objects that a key stands for, and every warning about other
// objects in their namespace: the reason why an object does not become ready is often reported about one that it owns.
// The result is empty if the events cannot be read: they only help to explain.
func (r *runner) events(ctx context.Context, typ objects.Type, key plan.ResourceKey, since time.Time) string {
	ctx, cancel := clock.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	list, err := r.objects.Resource(eventType, key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	var all []corev1.Event
	for i := range list.Items {
		var e corev1.Event
		if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &e) != nil {
			continue
		}
		about := e.InvolvedObject.Kind == typ.Kind.Kind &&
			typ.Matches(key, e.InvolvedObject.Namespace, e.InvolvedObject.Name)
		// Times of events are truncated to the second.
		if (about || e.Type == corev1.EventTypeWarning) && !eventTime(&e).Before(since.Truncate(time.Second)) {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b)) })
	if len(all) == 0 {
		return ""
	}
	lines := []string{"events:"}
	if more := len(all) - mostEvents; more > 0 {
		lines[0] = fmt.Sprintf("events (the newest; %d earlier ones are left out):", more)
		all = all[more:]
	}
	for i := range all {
		e := &all[i]
		times := ""
		if n := eventCount(e); n > 1 {
			times = fmt.Sprintf(" (%d times)", n)
		}
		lines = append(lines, fmt.Sprintf("  %s %s of %s/%s/%s%s: %s", e.Type, e.Reason,
			strings.ToLower(e.InvolvedObject.Kind),
			e.InvolvedObject.Namespace, e.InvolvedObject.Name, times, strings.Join(strings.Fields(e.Message), " ")))
	}
	return strings.Join(lines, "\n")
}

// eventTime returns when an event was last reported. Recorders of events.k8s.io and of the core group use different
// fields.
func eventTime(e *corev1.Event) time.Time {
	latest := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(latest) {
			latest = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(latest) {
		latest = e.Series.LastObservedTime.Time
	}
	return latest
}

func eventCount(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return e.Count
}
