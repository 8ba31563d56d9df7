package controller

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// WhenChanged lets an update of a disruption wake a controller only if what it reads has changed: its spec, whether it
// is deleted or paused, and what reads returns. What a controller was not woken for is often not in the cache yet: it
// would only find out that it has nothing to do, or write what was written.
func WhenChanged[T any](reads func(*chaos.Disruption) T) builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*chaos.Disruption)
		after, ok2 := e.ObjectNew.(*chaos.Disruption)
		return !ok || !ok2 || before.UID != after.UID || before.Generation != after.Generation ||
			(before.DeletionTimestamp != nil) != (after.DeletionTimestamp != nil) || Paused(before) != Paused(after) ||
			!equality.Semantic.DeepEqual(reads(before), reads(after))
	}})
}

// Readiness is what Ready and Ending depend on.
type Readiness struct {
	Finalizers              []string
	SpecHash                string
	SpecLost, Refused, Over bool
}

// ReadinessOf returns what Ready and Ending depend on.
func ReadinessOf(d *chaos.Disruption) Readiness {
	return Readiness{
		d.Finalizers, d.Status.SpecHash, specLost(d), Refusal(&d.Status) != nil, d.Status.Schedule.Over,
	}
}
