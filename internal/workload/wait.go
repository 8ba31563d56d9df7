package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// waiter waits for an object. If its key stands for several, it waits until one of them meets the condition, or until
// all are absent.
type waiter struct {
	key       plan.ResourceKey
	condition *cel.Expression
	phase     string
	absent    bool

	typ    objects.Type
	found  map[string]*unstructured.Unstructured // by namespace/name
	last   string                                // the last state of an object that is gone
	miss   error                                 // why the newest evaluation of the condition failed
	broken error                                 // why the newest request to the API server failed
}

func (w *waiter) wait(ctx context.Context, r *runner) error {
	gone, err := w.resolve(ctx, r)
	if gone || err != nil {
		return err
	}
	name := w.key.Name
	if strings.Contains(name, "*") {
		name = ""
	}
	if err := r.objects.Follow(ctx, w.typ, w.key.Namespace, name, w); err != nil {
		// The step has timed out.
		failed := &failure{
			err: err, awaited: named(w.typ, w.one()), harm: w.harm(),
			detail: strings.Trim(r.events(context.WithoutCancel(ctx), w.typ, w.key, r.began)+"\n"+w.state(), "\n"),
		}
		if w.neverCame() {
			failed.claims.Say(record.In(r.cluster, named(w.typ, w.key)), record.ClaimAbsent)
		}
		return failed
	}
	return nil
}

// resolve waits until the type is served: one that is not has no objects. It returns true if the step waits for that.
func (w *waiter) resolve(ctx context.Context, r *runner) (gone bool, err error) {
	retry := r.retry
	if w.absent {
		retry = objects.Retry // nothing to wait for
	}
	var missing error
	for {
		err := retry(ctx, func(ctx context.Context) error {
			var err error
			w.typ, err = r.objects.Resolve(ctx, w.key)
			return err
		})
		may := objects.MayCome(w.key, err)
		if may {
			missing = err
		}
		switch {
		case may && w.absent:
			return true, nil
		case ctx.Err() != nil && missing != nil:
			return false, &failure{err: context.Cause(ctx), detail: missing.Error()}
		case !may:
			return false, err
		}
	}
}

// one is the key of what it waits for: that of the first object that is there, if the key stands for several.
func (w *waiter) one() plan.ResourceKey {
	key := w.key
	if key.HasWildcard() && len(w.found) > 0 {
		key.Namespace, key.Name, _ = strings.Cut(slices.Min(slices.Collect(maps.Keys(w.found))), "/")
	}
	return key
}

// named is the key of an object of a type as findings have it: with the type's group.
func named(t objects.Type, key plan.ResourceKey) string {
	typ := t.Singular
	if t.Resource.Group != "" {
		typ += "." + t.Resource.Group
	}
	return typ + "/" + key.Namespace + "/" + key.Name
}

// harm is what an unsuccessful wait means; empty: the object exists as it should, but not in that state, or
// its state is unknown.
func (w *waiter) harm() record.Harm {
	switch {
	case w.broken != nil || w.found == nil:
		return ""
	case w.absent:
		return record.HarmLeft
	case len(w.found) == 0:
		return record.HarmMissing
	}
	return ""
}

// Listed implements objects.Follower.
func (w *waiter) Listed(all []*unstructured.Unstructured, _ string) bool {
	w.broken = nil
	w.found = map[string]*unstructured.Unstructured{}
	for _, u := range all {
		w.take(u)
	}
	return w.satisfied()
}

// Changed implements objects.Follower.
func (w *waiter) Changed(event watch.EventType, u *unstructured.Unstructured) bool {
	w.broken = nil
	if event == watch.Deleted {
		if _, ok := w.found[id(u)]; ok {
			w.last = show(u)
			delete(w.found, id(u))
		}
	} else {
		w.take(u)
	}
	return w.satisfied()
}

// Broken implements objects.Follower.
func (w *waiter) Broken(err error) bool {
	w.broken = err
	return w.absent && objects.NotServedYet(err) // with the type went its objects
}

func id(u *unstructured.Unstructured) string { return u.GetNamespace() + "/" + u.GetName() }

func (w *waiter) take(u *unstructured.Unstructured) {
	if w.typ.Matches(w.key, u.GetNamespace(), u.GetName()) {
		w.found[id(u)] = u
	}
}

func (w *waiter) satisfied() bool {
	if w.absent {
		return len(w.found) == 0
	}
	w.miss = nil
	for _, u := range w.found {
		if w.holds(u) {
			return true
		}
	}
	return false
}

func (w *waiter) holds(u *unstructured.Unstructured) bool {
	switch {
	case w.phase != "":
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return phase == w.phase
	case w.condition != nil:
		ok, err := w.condition.Holds(map[string]any{"object": u.Object})
		if err != nil {
			w.miss = err
		}
		return ok
	}
	return true
}

// state describes the objects that existed at the end of the wait.
func (w *waiter) state() string {
	var lines []string
	if w.broken != nil {
		lines = append(lines, fmt.Sprintf("the API server could not be reached: %v", w.broken))
	}
	if w.miss != nil {
		lines = append(lines, fmt.Sprintf("the condition could not be evaluated: %v", w.miss))
	}
	const most = 5
	var ids []string
	for name := range w.found {
		ids = append(ids, name)
	}
	slices.Sort(ids)
	for i, name := range ids {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(ids)-most))
			break
		}
		lines = append(lines, "last state:", show(w.found[name]))
	}
	switch {
	case w.found == nil && w.broken == nil:
		lines = append(lines, "the API server did not answer")
	case len(ids) > 0 || w.found == nil:
	case w.last != "":
		lines = append(lines, "it was deleted; last state before that:", w.last)
	case w.neverCame():
		lines = append(lines, "no such object existed while the step waited")
	}
	return strings.Join(lines, "\n")
}

// neverCame reports whether there was no object of the key during the whole wait.
func (w *waiter) neverCame() bool { return w.found != nil && len(w.found) == 0 && w.last == "" }

// show returns an object as YAML without its managed fields and other noise.
func show(u *unstructured.Unstructured) string {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	// The status comes first, because it usually shows the problem, and a long object is truncated.
	var text string
	if status, ok := u.Object["status"]; ok {
		data, err := yaml.Marshal(map[string]any{"status": status})
		if err != nil {
			return err.Error()
		}
		text = string(data)
		delete(u.Object, "status")
	}
	data, err := yaml.Marshal(u.Object)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	text = strings.TrimRight(text+string(data), "\n")
	if len(text) > most {
		text = text[:most] + "\n…"
	}
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
