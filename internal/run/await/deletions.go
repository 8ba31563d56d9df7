package await

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Deletions blocks while a recorded object is marked for deletion and waits for a finalizer, at most until no such
// object has changed for [facts.Patience]: a controller may look at it again by itself, without a work queue that
// shows it. It returns at the latest after twice that time, or after mostReal, and in real time at once. The error is
// that of ctx.
func Deletions(ctx context.Context, g Growing) error {
	if clock.Of(ctx) == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, mostReal)
	defer cancel()
	waiting := map[string]bool{} // by UID
	from, read := clock.Now(ctx), 0
	latest := from.Add(2 * facts.Patience)
	for {
		entries, changed := g.Since(read)
		read += len(entries)
		for i := range entries {
			e := &entries[i]
			var o metav1.PartialObjectMetadata
			if err := json.Unmarshal(e.Object, &o); err != nil {
				continue // the judges report it
			}
			delete(waiting, string(o.UID))
			if e.Event != record.Deleted && o.DeletionTimestamp != nil && len(o.Finalizers) > 0 {
				waiting[string(o.UID)] = true
				if e.Time.After(from) {
					from = e.Time
				}
			}
		}
		until := from.Add(facts.Patience)
		if until.After(latest) {
			until = latest
		}
		wait := until.Sub(clock.Now(ctx))
		if len(waiting) == 0 || wait <= 0 {
			return nil
		}
		if err := sleepUnless(bounded, changed, wait+time.Millisecond); err != nil {
			return ctx.Err()
		}
	}
}
