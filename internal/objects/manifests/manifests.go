// Package manifests reads the objects that suites apply, from YAML and JSON files, kustomizations and Helm charts, also
// in API versions that Kubernetes no longer serves. It checks them without a cluster.
package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

const defaultNamespace = metav1.NamespaceDefault

// OfSuite reads all manifests of the suite, in order: files, kustomizations and charts. Objects in API versions that
// Kubernetes no longer serves are converted, see [Served]. Kubernetes is the version that charts are rendered for. The
// notes tell the user what was left out or converted. The last ones are the warnings, see [Installed].
func OfSuite(suite *plan.Suite, kubernetes string) (list []*unstructured.Unstructured, notes []string, err error) {
	all, err := LocatedOfSuite(suite, kubernetes)
	for _, text := range all.Warnings {
		all.Notes = append(all.Notes, Warning+text)
	}
	return Bare(all.Objects), all.Notes, err
}

// Warning begins the lines of warnings that a user reads.
const Warning = "warning: "

// Installed is what the manifests of a suite install.
type Installed struct {
	Objects  []objects.Located
	Notes    []string // what was left out or converted
	Warnings []string // probable mistakes in the manifests that do not prevent a run, as file:line: message
}

// LocatedOfSuite is [OfSuite] with the place of each object.
func LocatedOfSuite(suite *plan.Suite, kubernetes string) (Installed, error) {
	var all Installed
	var errs []error
	for _, m := range suite.Manifests {
		list, notes, err := one(suite.File, m, kubernetes)
		if err != nil {
			errs = append(errs, err)
		}
		for i := range list {
			list[i].Cluster = m.Cluster
		}
		all.Warnings = append(all.Warnings, dropUnknown(list, kubernetes)...)
		all.Objects, all.Notes = append(all.Objects, list...), append(all.Notes, notes...)
	}
	if err := errors.Join(errs...); err != nil {
		return Installed{}, err
	}
	all.Warnings = append(all.Warnings, unserved(all.Objects)...)
	all.Notes, all.Warnings = onceEach(all.Notes), onceEach(all.Warnings)
	return all, nil
}

// One reads one manifest of the suite in suiteFile, without warnings. See [OfSuite].
func One(suiteFile string, m plan.Manifest, kubernetes string) (list []*unstructured.Unstructured, notes []string,
	err error) {
	all, notes, err := one(suiteFile, m, kubernetes)
	dropUnknown(all, kubernetes)
	return Bare(all), notes, err
}

func one(suiteFile string, m plan.Manifest, kubernetes string) (list []objects.Located, notes []string, err error) {
	file := func(name string) string { return plan.Beside(suiteFile, name) }
	if m.Helm != "" {
		return helm(m, kubernetes, file)
	}
	at := file(m.Path)
	if isChart(at) {
		return nil, nil, fmt.Errorf("%s is a Helm chart: write `helm: %s`", m.Path, m.Path)
	}
	if m.SkipRemote && !isKustomization(at) {
		return nil, nil, fmt.Errorf("%s has no kustomization, which skipRemote is for", m.Path)
	}
	list, remote, err := read(at, m.SkipRemote)
	if err != nil {
		return nil, nil, err
	}
	if list, notes, err = convertAll(list); err != nil {
		return nil, nil, err
	}
	if m.SkipRemote {
		for _, what := range remote {
			notes = append(notes, fmt.Sprintf("%s is left out: %s would load it from the network", what, at))
		}
	}
	if m.Namespace != "" {
		setNamespace(Bare(list), m.Namespace)
	}
	return list, notes, nil
}

// setNamespace sets the namespace of namespaced objects that do not name one, and of service accounts that a
// ClusterRoleBinding names without one: an API server refuses these. (In a RoleBinding it is the binding's own.)
func setNamespace(list []*unstructured.Unstructured, namespace string) {
	defined := objects.Defined(list)
	for _, u := range list {
		// An unknown type is a custom resource. Most of these are namespaced; [objects.Client.Apply] finds out.
		if in, known := namespaced(u, defined); u.GetNamespace() == "" && (in || !known) {
			u.SetNamespace(namespace)
		}
		for _, subject := range subjects(u) {
			if in, _ := subject["namespace"].(string); subject["kind"] == "ServiceAccount" && in == "" {
				subject["namespace"] = namespace
			}
		}
	}
}

// subjects returns those of a ClusterRoleBinding, to be read and changed.
func subjects(u *unstructured.Unstructured) []map[string]any {
	if kind := u.GroupVersionKind(); kind.Group != "rbac.authorization.k8s.io" || kind.Kind != "ClusterRoleBinding" {
		return nil
	}
	return mappings(u.Object["subjects"])
}

// namespaced reports whether the object is namespaced, as far as that can be determined without a cluster.
func namespaced(u *unstructured.Unstructured, defined []objects.Type) (in, known bool) {
	kind := u.GroupVersionKind()
	for _, t := range defined {
		if t.Kind.GroupKind() == kind.GroupKind() {
			return t.Namespaced, true
		}
	}
	return openapi.IsNamespaceScoped(kyaml.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()})
}

// MissingNamespaces returns Namespace objects for the namespaces that the objects use but do not contain, in the order
// of their use. Namespaces that every cluster has are left out.
func MissingNamespaces(list []*unstructured.Unstructured) []*unstructured.Unstructured {
	seen := []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"}
	for _, u := range list {
		if u.GetKind() == "Namespace" && u.GetAPIVersion() == "v1" {
			seen = append(seen, u.GetName())
		}
	}
	defined := objects.Defined(list)
	var missing []*unstructured.Unstructured
	for _, u := range list {
		name := u.GetNamespace()
		if in, known := namespaced(u, defined); name == "" || known && !in || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		missing = append(missing, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}})
	}
	return missing
}

// copyValues copies a decoded mapping and converts its values to JSON's types.
func copyValues(m map[string]any) (map[string]any, error) {
	copied := map[string]any{}
	if m == nil {
		return copied, nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return copied, json.Unmarshal(data, &copied)
}
