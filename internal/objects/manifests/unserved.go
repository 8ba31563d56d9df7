package manifests

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trommel-dev/trommel/internal/objects"
)

// unserved warns of APIServices whose Service selects no pod of the manifests: their types are missing, and the cluster
// deletes no namespace, because it cannot see whether there are objects of these types in it.
func unserved(list []objects.Located) (warnings []string) {
	for i := range list {
		api := &list[i]
		if api.GroupVersionKind().GroupKind() != apiService {
			continue
		}
		namespace, _, _ := unstructured.NestedString(api.Object, "spec", "service", "namespace")
		name, _, _ := unstructured.NestedString(api.Object, "spec", "service", "name")
		for k := range list {
			service := list[k].Unstructured
			if service.GetKind() != "Service" || service.GetNamespace() != namespace ||
				service.GetName() != name {
				continue
			}
			selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
			if len(selector) > 0 && !anySelected(list, namespace, labels.SelectorFromSet(selector)) {
				warnings = append(warnings, fmt.Sprintf("%s: the API %s is missing, and no namespace can be deleted: "+
					"the selector of Service %s selects no pod of the manifests", api.At("spec.service.name"),
					api.GetName(), name))
			}
		}
	}
	return warnings
}

// anySelected reports whether a selector selects a pod in a namespace, or one of which there is the template.
func anySelected(list []objects.Located, namespace string, selector labels.Selector) bool {
	for i := range list {
		u := list[i].Unstructured
		if u.GetNamespace() != namespace {
			continue
		}
		template, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
		if template != nil && selector.Matches(labels.Set(template)) ||
			u.GetKind() == "Pod" && selector.Matches(labels.Set(u.GetLabels())) {
			return true
		}
	}
	return false
}
