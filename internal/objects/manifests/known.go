package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	chaos "github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/internal/objects"
	nodes "github.com/trommel-dev/trommel/nodes/config"
	"github.com/trommel-dev/trommel/plan"
)

// Known are the types that resource keys of a suite and of its plans may name, as far as they are known without a
// cluster.
type Known struct {
	served  []objects.Type // when the plan begins: Kubernetes' own and those that the manifests define
	further []objects.Type // that something else may bring
	groups  []string       // of aggregated API servers, whose types are not known
	doubts  []string       // why there may be other types
}

// NewKnown returns the types of Kubernetes itself and those that the installed objects define, the types of
// cert-manager and of Trommel, and those that the suite's workloads define.
func NewKnown(suite *plan.Suite, installed []*unstructured.Unstructured, kubernetes string) *Known {
	c, _ := NewChecker(installed, kubernetes) // its mistakes are reported with the manifests
	k := &Known{served: c.types(), further: slices.Concat(elsewhereTypes(), ownTypes())}
	if c.newer {
		k.Doubt("Kubernetes " + strings.TrimPrefix(kubernetes, "v") + " may have further types")
	}
	k.aggregated(installed)
	for i := range suite.Controllers {
		ctrl := &suite.Controllers[i]
		if ctrl.Deployment.IsZero() && cmp.Or(ctrl.ClusterRole, clusterAdmin) == clusterAdmin &&
			(ctrl.Build == nil || ctrl.Build.ControlPlane == "") {
			k.Doubt("controller " + ctrl.Name + " may do everything, and so define types")
		}
	}
	if role := definingRole(installed); role != "" {
		k.Doubt(role + " allows to define types")
	}
	for _, name := range slices.Sorted(maps.Keys(suite.Workloads)) {
		w := suite.Workloads[name]
		if len(w.Command) > 0 {
			k.Doubt(fmt.Sprintf("the command of workload %q may define types", name))
		}
		k.Steps(suite, w.Steps, fmt.Sprintf("workload %q", name))
	}
	return k
}

// Steps adds what steps may define; the owner names what they belong to.
func (k *Known) Steps(suite *plan.Suite, steps []plan.Step, owner string) {
	for _, s := range steps {
		switch {
		case s.Exec != nil:
			k.Doubt("a command of " + owner + " may define types")
		case s.Go != "":
			k.Doubt("a function of " + owner + " may define types")
		case s.Apply != nil:
			if list, _, err := OfStep(suite, s.Apply); err == nil { // an error is reported with the suite
				k.Add(list)
			} else {
				k.Doubt("the objects of " + owner + " cannot be read")
			}
		}
	}
}

// Plan adds what the plan's own steps and its actions may define.
func (k *Known) Plan(suite *plan.Suite, p *plan.Plan) {
	k.Steps(suite, p.Steps, "the plan")
	for i := range p.Actions {
		list, err := ofAction(&p.Actions[i], p.File)
		if err != nil {
			k.Doubt("the object of an action cannot be read")
		}
		k.Add(list)
	}
}

// ofAction returns the objects that an action applies.
func ofAction(a *plan.Action, file string) ([]*unstructured.Unstructured, error) {
	write := plan.EffectOf[*plan.Write](a)
	switch {
	case a.ManifestFile != "":
		list, _, err := ReadServed(plan.Beside(file, a.ManifestFile))
		return list, err
	case write == nil || write.Applies == nil:
		return nil, nil
	}
	u, err := objects.FromMap(write.Applies)
	if err != nil {
		return nil, err
	}
	list, _, err := Served([]*unstructured.Unstructured{u})
	return list, err
}

// Clone returns a copy that can get further types.
func (k *Known) Clone() *Known {
	return &Known{served: slices.Clip(k.served), further: slices.Clip(k.further), groups: slices.Clip(k.groups),
		doubts: slices.Clip(k.doubts)}
}

// Add adds the types that the objects define.
func (k *Known) Add(list []*unstructured.Unstructured) {
	k.further = append(k.further, objects.Defined(list)...)
	k.aggregated(list)
}

// Doubt says why there may be types that are not known.
func (k *Known) Doubt(reason string) {
	if !slices.Contains(k.doubts, reason) {
		k.doubts = append(k.doubts, reason)
	}
}

// Check calls check, which is CheckResources of a suite or a plan. It returns the mistakes, and notes about types that
// are not known, but that something may bring.
func (k *Known) Check(check func(resolve func(plan.ResourceKey) error) error) (notes []string, err error) {
	if len(k.doubts) == 0 {
		return nil, check(k.resolve)
	}
	only := func(unknown bool) error {
		return check(func(key plan.ResourceKey) error {
			if err := k.resolve(key); errors.Is(err, objects.ErrNotServed) == unknown {
				return err
			}
			return nil
		})
	}
	err = only(false)
	var doubtful plan.Errors
	if errors.As(only(true), &doubtful) {
		for _, m := range doubtful {
			notes = append(notes, fmt.Sprintf("%v (this may be right: %s)", m, k.doubts[0]))
		}
	}
	return notes, err
}

// resolve returns what is wrong with the key; the error is a [objects.NotServedError] if nothing known has that name.
func (k *Known) resolve(key plan.ResourceKey) error {
	named := func(t objects.Type) bool {
		return t.Singular == key.Type && (key.Group == "" || t.Resource.Group == key.Group)
	}
	if slices.ContainsFunc(k.further, named) || key.Group != "" && slices.Contains(k.groups, key.Group) {
		return nil
	}
	exact := slices.DeleteFunc(slices.Clone(k.served), func(t objects.Type) bool { return !named(t) })
	if len(exact) > 0 {
		_, err := objects.FindKey(exact, key)
		return err
	}
	t, err := objects.FindKey(k.served, key)
	if err != nil {
		var further error
		if t, further = objects.FindKey(k.further, key); further != nil {
			_, err = objects.FindKey(slices.Concat(k.served, k.further), key) // suggests one of all
			return err
		}
	}
	return objects.CheckKey(key, t)
}

// aggregated adds the API groups that the objects delegate to other API servers.
func (k *Known) aggregated(list []*unstructured.Unstructured) {
	for _, u := range list {
		spec := field(u.Object, "spec")
		if u.GroupVersionKind().GroupKind() != apiService || spec["service"] == nil {
			continue
		}
		group, _ := spec["group"].(string)
		k.groups = append(k.groups, group)
		k.Doubt("the API server behind APIService " + u.GetName() + " has types of its own")
	}
}

const clusterAdmin = "cluster-admin"

var apiService = schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}

// definingRole names a role among the objects, or a binding to Kubernetes' own, with which a controller may define
// types, or give itself the right to; "" if there is none. Which subjects are bound does not matter: a controller may
// be given a role by others.
func definingRole(list []*unstructured.Unstructured) string {
	for _, u := range list {
		kind := u.GroupVersionKind()
		if kind.Group != rbacv1.GroupName {
			continue
		}
		switch kind.Kind {
		case "ClusterRoleBinding":
			if field(u.Object, "roleRef")["name"] == clusterAdmin {
				return describe(u)
			}
		case "ClusterRole":
			var role rbacv1.ClusterRole
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role) != nil ||
				slices.ContainsFunc(role.Rules, mayDefine) {
				return describe(u)
			}
		}
	}
	return ""
}

func mayDefine(r rbacv1.PolicyRule) bool {
	allows := func(list []string, names ...string) bool {
		return slices.Contains(list, "*") || slices.ContainsFunc(names, func(n string) bool {
			return slices.Contains(list, n)
		})
	}
	switch {
	case allows(r.APIGroups, "apiextensions.k8s.io") && allows(r.Resources, "customresourcedefinitions") &&
		allows(r.Verbs, "create"), // an apply needs it too
		allows(r.APIGroups, apiService.Group) && allows(r.Resources, "apiservices") && allows(r.Verbs, "create"),
		allows(r.APIGroups, rbacv1.GroupName) && allows(r.Resources, "clusterroles") &&
			allows(r.Verbs, "bind", "escalate"),
		allows(r.Verbs, "impersonate"):
		return true
	}
	return false
}

// elsewhereTypes are types that are handled although the manifests do not define them, or that every API server serves
// and client-go does not know.
func elsewhereTypes() []objects.Type {
	var types []objects.Type
	for group, kinds := range map[string][]string{
		"apiextensions.k8s.io":   {"CustomResourceDefinition"},
		"apiregistration.k8s.io": {"APIService"},
		"cert-manager.io":        {"Certificate", "CertificateRequest", "Issuer", "ClusterIssuer"},
		"acme.cert-manager.io":   {"Order", "Challenge"},
	} {
		for _, kind := range kinds {
			gv := schema.GroupVersion{Group: group, Version: "v1"}
			types = append(types, objects.Type{Kind: gv.WithKind(kind), Singular: strings.ToLower(kind),
				Resource: gv.WithResource("")})
		}
	}
	return types
}

// ownTypes are those of disruptions and of node cycling.
var ownTypes = sync.OnceValue(func() []objects.Type {
	var types []objects.Type
	for _, files := range []fs.FS{chaos.Files, nodes.Files} {
		names, err := fs.Glob(files, "crd/*.yaml")
		if err != nil {
			panic(err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(files, name)
			if err != nil {
				panic(err)
			}
			list, err := objects.Decode(data, name)
			if err == nil { // crd/kustomization.yaml has no kind
				types = append(types, objects.Defined(list)...)
			}
		}
	}
	return types
})
