package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// ErrNotServed is wrapped by the error about a type that the cluster does not serve.
var ErrNotServed = errors.New("the cluster serves no such type")

// NotServedError says that the cluster does not serve a type, or that several groups do.
type NotServedError struct {
	What string // type, type.group or group/version kind
	Hint string // what would be right
}

func (e *NotServedError) Error() string {
	return fmt.Sprintf("the cluster serves no type %q%s", e.What, e.Hint)
}

// Is makes errors.Is(err, ErrNotServed) return true.
func (e *NotServedError) Is(target error) bool { return target == ErrNotServed }

// MayCome reports whether an error about a key says that its type is not served, and it may be served later. A key
// without a group is not meant so: it is misspelled, or its definition is missing.
func MayCome(key plan.ResourceKey, err error) bool {
	return key.Group != "" && errors.Is(err, ErrNotServed)
}

// Type is a type that the cluster serves.
type Type struct {
	Kind       schema.GroupVersionKind
	Resource   schema.GroupVersionResource
	Singular   string // lower case; its name in resource keys
	Namespaced bool
	Verbs      []string
	// Subresources of the type: status, scale, …
	Subresources []string
	Unserved     bool // a version that a definition has but does not serve

	alias     string // the singular of a definition, if it differs from the kind
	preferred bool   // the group's preferred version
}

// Matches reports whether the key stands for this object of this type.
func (t Type) Matches(key plan.ResourceKey, namespace, name string) bool {
	key.Type, key.Group = t.Singular, t.Resource.Group
	return key.Matches(t.Singular, t.Resource.Group, true, namespace, name)
}

// Resolve finds the key's type. It asks the API server again if it does not know the type yet, so that a type is found
// whose definition was just applied. For a type that is not served it returns a [NotServedError].
func (c *Client) Resolve(ctx context.Context, key plan.ResourceKey) (Type, error) {
	return c.served.find(ctx, func(all []Type) (Type, error) { return FindKey(all, key) })
}

// ResolveWith is Resolve for a cluster that will also serve the further types.
func (c *Client) ResolveWith(ctx context.Context, key plan.ResourceKey, further []Type) (Type, error) {
	return c.served.find(ctx, func(all []Type) (Type, error) { return FindKey(slices.Concat(all, further), key) })
}

// Defined returns the types that the CustomResourceDefinitions among the objects define, one for each version.
func Defined(list []*unstructured.Unstructured) []Type {
	var types []Type
	for _, u := range list {
		if u.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io",
			Kind: "CustomResourceDefinition"}) {
			continue
		}
		text := func(fields ...string) string {
			s, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, fields...)...)
			return s
		}
		// Not copied: schemas are large.
		field, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "versions")
		versions, _ := field.([]any)
		if only := text("version"); len(versions) == 0 && only != "" { // as v1beta1 may have it
			versions = []any{map[string]any{"name": only, "served": true}}
		}
		shared, _, _ := unstructured.NestedMap(u.Object, "spec", "subresources") // as v1beta1 may have it
		for _, v := range versions {
			version, _ := v.(map[string]any)
			name, _ := version["name"].(string)
			servedVersion, _ := version["served"].(bool)
			gv := schema.GroupVersion{Group: text("group"), Version: name}
			own, _ := version["subresources"].(map[string]any)
			if own == nil {
				own = shared
			}
			below := slices.Sorted(maps.Keys(own))
			types = append(types, Type{
				Kind: gv.WithKind(text("names", "kind")), Resource: gv.WithResource(text("names", "plural")),
				Singular: strings.ToLower(text("names", "kind")), Namespaced: text("scope") == "Namespaced",
				Verbs: slices.Clone(verbsOfDefined), Subresources: below,
				alias:    text("names", "singular"),
				Unserved: !servedVersion,
			})
		}
	}
	return types
}

// verbsOfDefined are those that an API server serves for each custom resource.
var verbsOfDefined = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// ResolveKind finds the type of a kind in exactly that version.
func (c *Client) ResolveKind(ctx context.Context, kind schema.GroupVersionKind) (Type, error) {
	return c.served.find(ctx, func(all []Type) (Type, error) { return FindKind(all, kind) })
}

// Watchable reports whether the type's objects can be listed and watched. Those of some types, such as reviews, can
// only be created.
func (t Type) Watchable() bool {
	return slices.Contains(t.Verbs, "list") && slices.Contains(t.Verbs, "watch")
}

// AllWatchable asks the API server for its types, and returns the watchable ones, each in one version.
func (c *Client) AllWatchable(ctx context.Context) ([]Type, error) {
	if err := c.served.refresh(ctx); err != nil {
		return nil, err
	}
	c.served.mu.RLock()
	defer c.served.mu.RUnlock()
	var all []Type
	for _, t := range c.served.all {
		if !t.Watchable() {
			continue
		}
		at := slices.IndexFunc(all, func(o Type) bool {
			return o.Resource.GroupResource() == t.Resource.GroupResource()
		})
		switch {
		case at < 0:
			all = append(all, t)
		case t.preferred && !all[at].preferred:
			all[at] = t
		}
	}
	return all, nil
}

// served holds the types that the API server is known to serve.
type served struct {
	discovery discovery.DiscoveryInterface

	mu  sync.RWMutex
	all []Type
}

func (s *served) find(ctx context.Context, find func([]Type) (Type, error)) (Type, error) {
	s.mu.RLock()
	all := s.all
	s.mu.RUnlock()
	t, err := find(all)
	if err == nil {
		return t, nil
	}
	if ctx.Err() != nil {
		return Type{}, ctx.Err()
	}
	if err := s.refresh(ctx); err != nil {
		return Type{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return find(s.all)
}

// refresh asks the API server for its types. Groups that cannot be asked, such as those of an aggregated API server
// that is down, are left out.
func (s *served) refresh(ctx context.Context) error {
	groups, lists, err := s.groupsAndResources(ctx)
	if err != nil && len(lists) == 0 {
		return fmt.Errorf("ask the API server for its types: %w", err)
	}
	preferred := map[string]bool{}
	for _, g := range groups {
		preferred[g.PreferredVersion.GroupVersion] = true
	}
	var all []Type
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		below := subresources(list)
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			// The singular of Kubernetes' own types is empty or, for some, differs from the kind.
			all = append(all, Type{
				Kind: gv.WithKind(r.Kind), Resource: gv.WithResource(r.Name), Singular: strings.ToLower(r.Kind),
				Namespaced: r.Namespaced,
				Verbs:      r.Verbs, Subresources: below[r.Name], alias: r.SingularName,
				preferred: preferred[list.GroupVersion],
			})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
	return nil
}

// groupsAndResources asks the API server, as resources does. A discovery client has no context, so it waits by the
// machine's clock before it repeats a request: the run's is held meanwhile.
func (s *served) groupsAndResources(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	defer clock.Hold(ctx)()
	return s.discovery.ServerGroupsAndResources()
}

// resources asks the API server for the types of one version of a group.
func (s *served) resources(ctx context.Context, of schema.GroupVersion) (*metav1.APIResourceList, error) {
	defer clock.Hold(ctx)()
	return s.discovery.ServerResourcesForGroupVersion(of.String())
}

// add adds types that the API server serves.
func (s *served) add(types []Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.all), func(old Type) bool {
		return slices.ContainsFunc(types, func(t Type) bool { return t.Kind == old.Kind })
	})
	s.all = append(all, types...)
}

// subresources lists the subresources of each resource.
func subresources(list *metav1.APIResourceList) map[string][]string {
	below := map[string][]string{}
	for _, r := range list.APIResources {
		if resource, subresource, ok := strings.Cut(r.Name, "/"); ok {
			below[resource] = append(below[resource], subresource)
		}
	}
	return below
}

// FindKey finds the type of a key among the types. It prefers a group's preferred version. Without a group, Kubernetes'
// own groups come first: a pod is a pod of the core group, whatever metrics.k8s.io calls a pod.
func FindKey(all []Type, key plan.ResourceKey) (Type, error) {
	what := key.Type
	if key.Group != "" {
		what += "." + key.Group
	}
	var hits []Type
	for _, t := range all {
		if (t.Singular == key.Type || t.Resource.Resource == key.Type || t.alias == key.Type) &&
			(key.Group == "" || t.Resource.Group == key.Group) {
			at := slices.IndexFunc(hits, func(h Type) bool {
				return h.Resource.GroupResource() == t.Resource.GroupResource()
			})
			switch {
			case at < 0:
				hits = append(hits, t)
			case t.preferred && !hits[at].preferred:
				hits[at] = t
			}
		}
	}
	if key.Group == "" && len(hits) > 1 {
		for _, own := range []func(string) bool{
			func(g string) bool { return g == "" },
			func(g string) bool { return !strings.Contains(g, ".") && g != "extensions" },
			func(g string) bool {
				return strings.HasSuffix(g, ".k8s.io") && g != "metrics.k8s.io" && g != "events.k8s.io"
			},
		} {
			i := slices.IndexFunc(hits, func(t Type) bool { return own(t.Resource.Group) })
			if i >= 0 {
				return hits[i], nil
			}
		}
		var names []string
		for _, h := range hits {
			names = append(names, h.Singular+"."+h.Resource.Group)
		}
		slices.Sort(names)
		return Type{}, &NotServedError{What: what, Hint: fmt.Sprintf(" without a group: several groups have one; "+
			"write %s", strings.Join(names, " or "))}
	}
	if len(hits) == 0 {
		return Type{}, &NotServedError{what, suggest(all, key)}
	}
	return hits[0], nil
}

// KeyError says that a key names a type by its plural, or by another name, and not by its kind.
type KeyError struct {
	Key  plan.ResourceKey
	Type Type
}

func (e *KeyError) Error() string {
	right := e.Key
	right.Type = e.Type.Singular
	return fmt.Sprintf("type %s: do you mean %s? (its kind is %s; write %s)", e.Key.Type, right.Type, e.Type.Kind.Kind,
		right)
}

// CheckKey checks that a key names the type that was found for it by its kind: observations name an object's kind, and
// its definition may have another singular. The error is a [KeyError].
func CheckKey(key plan.ResourceKey, t Type) error {
	if key.Type != t.Singular {
		return &KeyError{key, t}
	}
	return nil
}

// FindKind finds the type of a kind in exactly that version among the types. If it is not there, the error is a
// [NotServedError].
func FindKind(all []Type, kind schema.GroupVersionKind) (Type, error) {
	what := kind.GroupVersion().String() + " " + kind.Kind
	for _, t := range all {
		if t.Kind == kind {
			return t, nil
		}
	}
	var versions []string
	for _, t := range all {
		if t.Kind.GroupKind() == kind.GroupKind() {
			versions = append(versions, t.Kind.GroupVersion().String())
		}
	}
	if len(versions) > 0 {
		return Type{}, &NotServedError{What: what,
			Hint: fmt.Sprintf(" (it serves %s in %s)", kind.Kind, strings.Join(versions, ", "))}
	}
	for _, t := range all {
		if t.Kind.Kind == kind.Kind {
			versions = append(versions, t.Kind.GroupVersion().String())
		}
	}
	if len(versions) > 0 {
		return Type{}, &NotServedError{What: what,
			Hint: fmt.Sprintf(" (it serves a %s in %s)", kind.Kind, strings.Join(versions, ", "))}
	}
	return Type{}, &NotServedError{what, suggest(all, plan.ResourceKey{Type: strings.ToLower(kind.Kind)})}
}

// suggest lists types whose names are similar to the key's, if there are any.
func suggest(all []Type, key plan.ResourceKey) string {
	type candidate struct {
		name     string
		distance int
	}
	var similar []candidate
	limit := 1 + len(key.Type)/4
	for _, t := range all {
		d := min(wording.Distance(key.Type, t.Singular), wording.Distance(key.Type, t.Resource.Resource))
		if d > limit && len(key.Type) >= 4 && strings.Contains(t.Singular, key.Type) {
			d = limit
		}
		if d > limit {
			continue
		}
		name := t.Singular
		if t.Resource.Group != "" && (key.Group != "" || d == 0) {
			name += "." + t.Resource.Group
		}
		if !slices.ContainsFunc(similar, func(c candidate) bool { return c.name == name }) {
			similar = append(similar, candidate{name, d})
		}
	}
	if len(similar) == 0 {
		return "; is its CustomResourceDefinition among the suite's manifests?"
	}
	slices.SortStableFunc(similar, func(a, b candidate) int { return a.distance - b.distance })
	var names []string
	for _, c := range similar[:min(3, len(similar))] {
		names = append(names, fmt.Sprintf("%q", c.name))
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
