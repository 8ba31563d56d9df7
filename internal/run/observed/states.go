package observed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// States chooses the types whose objects' states a run records.
type States struct {
	Types interface {
		Resolver
		AllWatchable(ctx context.Context) ([]objects.Type, error)
	}
	List   func(ctx context.Context, t objects.Type) error // says whether the API server can list it now
	Find   bool                                            // the types that matter are not all known: record every type
	Logger *slog.Logger

	// recorder says what was recorded; nil: nothing is yet.
	Recorder interface {
		Types() []objects.Type    // that were recorded so far
		FollowsDefinitions() bool // types are recorded that begin to be served
	}

	Named    []plan.ResourceKey // recorded in any case
	listed   []plan.ResourceKey // with find: the others that are recorded
	Unlisted []plan.ResourceKey // with find: those that cannot be listed
}

// Choose returns what to record: the types of the keys, and those of the further keys that can be watched; if types are
// to be found, all.
func (s *States) Choose(ctx context.Context, keys, further []plan.ResourceKey) ([]plan.ResourceKey, error) {
	s.Named = AllOf(keys)
	for _, key := range AllOf(further) {
		// A controller may also work with types that cannot be watched, such as reviews.
		if t, err := s.Types.Resolve(ctx, key); (err != nil || t.Watchable()) && !slices.Contains(s.Named, key) {
			s.Named = append(s.Named, key)
		}
	}
	if !s.Find {
		return s.Named, nil
	}
	var err error
	s.listed, err = s.listable(ctx)
	return slices.Concat(s.Named, s.listed), err
}

// AllOf returns keys of all objects of the keys' types, each once: invariants also refer to objects that belong to the
// named one and have other names.
func AllOf(keys ...[]plan.ResourceKey) []plan.ResourceKey {
	var types []plan.ResourceKey
	for _, k := range slices.Concat(keys...) {
		t := plan.ResourceKey{Type: k.Type, Group: k.Group, Namespace: "*", Name: "*"}
		if k.Type != "" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return types
}

// listTimeout is how long a type that is perhaps not needed may take to be listed.
const listTimeout = 5 * time.Second

// listAtOnce bounds the number of types that are listed at the same time.
const listAtOnce = 8

// listable lists the types of which anything counts, without those that the API server cannot list now.
func (s *States) listable(ctx context.Context) ([]plan.ResourceKey, error) {
	all, err := s.Types.AllWatchable(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var keys []plan.ResourceKey
	var group errgroup.Group
	group.SetLimit(listAtOnce)
	for _, t := range all {
		key := plan.ResourceKey{Type: t.Singular, Group: t.Resource.Group, Namespace: "*", Name: "*"}
		if !baseline.Counts(key) {
			continue
		}
		group.Go(func() error {
			ctx, cancel := clock.WithTimeout(ctx, listTimeout)
			defer cancel()
			err := s.List(ctx, t)
			if err != nil {
				s.Logger.Debug("a type is not recorded", "type", key, "error", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.Unlisted = append(s.Unlisted, key)
			} else {
				keys = append(keys, key)
			}
			return nil
		})
	}
	_ = group.Wait()
	return keys, ctx.Err()
}

// Further reports whether a type is to be recorded that begins to be served.
func (s *States) Further(t objects.Type) bool {
	key := plan.ResourceKey{Type: t.Singular, Group: t.Resource.Group, Namespace: "*", Name: "*"}
	return s.Find && baseline.Counts(key) && !slices.Contains(s.Unlisted, key)
}

// resolve finds a type among those that were recorded, which may not be served any more, or on the cluster.
func (s *States) resolve(ctx context.Context, key plan.ResourceKey) (objects.Type, error) {
	t, err := s.Types.Resolve(ctx, key)
	if s.neverServed(err) {
		if before, otherErr := objects.FindKey(s.Recorder.Types(), key); otherErr == nil {
			return before, nil
		}
	}
	return t, err
}

// neverServed reports whether an error of resolve says that a type was not served at any time.
func (s *States) neverServed(err error) bool {
	return errors.Is(err, objects.ErrNotServed) && s.Recorder != nil && s.Recorder.FollowsDefinitions()
}

// Needed returns the part of a history of all objects that would have been recorded if the types had been known: those
// that were named, and those that the controllers had to do with, which are seen. The error says that one of them was
// not recorded.
func (s *States) Needed(
	ctx context.Context, all []record.HistoryEntry, seen []plan.ResourceKey,
) ([]record.HistoryEntry, error) {
	if !s.Find {
		return all, nil
	}
	type typ struct{ name, group string }
	want, recorded := map[typ]bool{}, map[typ]bool{}
	for _, key := range s.listed {
		recorded[typ{key.Type, key.Group}] = true
	}
	if s.Recorder != nil {
		for _, t := range s.Recorder.Types() {
			recorded[typ{t.Singular, t.Resource.Group}] = true
		}
	}
	for _, key := range s.Named {
		t, err := s.resolve(ctx, key)
		if s.neverServed(err) {
			continue
		}
		if err != nil {
			return all, err
		}
		want[typ{t.Singular, t.Resource.Group}], recorded[typ{t.Singular, t.Resource.Group}] = true, true
	}
	var errs []error
	for _, key := range seen {
		t, err := s.resolve(ctx, key) // not every observation knows the group
		if s.neverServed(err) {
			continue // the controllers have found none
		}
		counts := baseline.Counts(plan.ResourceKey{
			Type: t.Singular, Group: t.Resource.Group, Namespace: "*", Name: "*",
		})
		if err == nil && (!t.Watchable() || !counts) {
			continue
		}
		if id := (typ{t.Singular, t.Resource.Group}); err != nil || !recorded[id] {
			errs = append(errs, fmt.Errorf("record history: %s could not be listed when the workload began: %w", key,
				cmp.Or(err, errors.New("it was not served"))))
		} else {
			want[id] = true
		}
	}
	return slices.DeleteFunc(all, func(h record.HistoryEntry) bool { return !want[typ{h.Type, h.Group}] }),
		errors.Join(errs...)
}

// Unrecorded lists those of the types that are not recorded, although something of their objects may count.
func (s *States) Unrecorded(ctx context.Context, seen []plan.ResourceKey) []plan.ResourceKey {
	if s.Find {
		return nil // Needed reports it
	}
	recorded := map[plan.ResourceKey]bool{}
	of := func(t objects.Type) plan.ResourceKey {
		return plan.ResourceKey{Type: t.Singular, Group: t.Resource.Group, Namespace: "*", Name: "*"}
	}
	for _, key := range s.Named {
		if t, err := s.Types.Resolve(ctx, key); err == nil {
			recorded[of(t)] = true
		}
	}
	var all []plan.ResourceKey
	for _, key := range seen {
		// Of a type that is not served any more nothing can be said.
		t, err := s.Types.Resolve(ctx, key)
		if err != nil || !t.Watchable() || !baseline.Counts(of(t)) || recorded[of(t)] {
			continue
		}
		recorded[of(t)] = true
		all = append(all, of(t))
	}
	slices.SortFunc(all, func(a, b plan.ResourceKey) int { return cmp.Compare(a.String(), b.String()) })
	return all
}
