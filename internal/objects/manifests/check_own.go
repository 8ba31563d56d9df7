package manifests

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// required are fields of Kubernetes' own types that an API server requires and does not fill in, by kind.group. A path
// through a list, as in containers[].name, is that of each item. (The types' tags do not tell: many fields without
// omitempty have a default or may be empty.)
var required = map[string][]string{
	"Pod":                   podFields("spec."),
	"ReplicationController": podFields("spec.template.spec."),
	"Deployment.apps":       selecting,
	"ReplicaSet.apps":       selecting,
	"StatefulSet.apps":      selecting,
	"DaemonSet.apps":        selecting,
	"Job.batch":             podFields("spec.template.spec."),
	"CronJob.batch": append(podFields("spec.jobTemplate.spec.template.spec."),
		"spec.schedule"),
	"PersistentVolumeClaim":                 {"spec.accessModes", "spec.resources.requests.storage"},
	"Service":                               {"spec.ports[].port"},
	"StorageClass.storage.k8s.io":           {"provisioner"},
	"Role.rbac.authorization.k8s.io":        {"rules[].verbs"},
	"ClusterRole.rbac.authorization.k8s.io": {"rules[].verbs"},
	"RoleBinding.rbac.authorization.k8s.io": bindingFields,
	"HorizontalPodAutoscaler.autoscaling": {"spec.maxReplicas", "spec.scaleTargetRef.kind",
		"spec.scaleTargetRef.name"},
	"Ingress.networking.k8s.io":                                   {"spec.rules[].http.paths[].pathType"},
	"EndpointSlice.discovery.k8s.io":                              {"addressType"},
	"ClusterRoleBinding.rbac.authorization.k8s.io":                bindingFields,
	"MutatingWebhookConfiguration.admissionregistration.k8s.io":   webhookFields,
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io": webhookFields,
}

var (
	selecting     = append([]string{"spec.selector"}, podFields("spec.template.spec.")...)
	bindingFields = []string{"roleRef.kind", "roleRef.name", "subjects[].kind", "subjects[].name"}
	webhookFields = []string{"webhooks[].name", "webhooks[].clientConfig", "webhooks[].sideEffects",
		"webhooks[].admissionReviewVersions"}
)

// valueError is about a value that a mutating webhook of the manifests may still fill in or change.
type valueError struct{ message string }

func (e *valueError) Error() string { return e.message }

// podFields are the required fields of a pod's spec below a path.
func podFields(below string) []string {
	all := []string{below + "containers", below + "volumes[].name"}
	for _, list := range []string{"containers", "initContainers"} {
		for _, name := range []string{"name", "image", "env[].name", "ports[].containerPort", "volumeMounts[].name",
			"volumeMounts[].mountPath"} {
			all = append(all, below+list+"[]."+name)
		}
	}
	return all
}

// checkRequired finds required fields that an object of Kubernetes' own types lacks.
func checkRequired(u *unstructured.Unstructured) (errs []error) {
	for _, path := range required[u.GroupVersionKind().GroupKind().String()] {
		for _, lacking := range lacks(u.Object, strings.Split(path, "."), "") {
			errs = append(errs, &valueError{lacking + " is required"})
		}
	}
	return errs
}

// lacks returns the paths, below the path at, of fields that are absent or empty.
func lacks(value any, path []string, at string) []string {
	name, each := strings.CutSuffix(path[0], "[]")
	if at != "" {
		at += "."
	}
	at += name
	in, _ := value.(map[string]any)
	child := in[name]
	if each {
		var all []string
		items, _ := child.([]any)
		for i, item := range items {
			if _, ok := item.(map[string]any); ok { // others are reported as such
				all = append(all, lacks(item, path[1:], fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
		return all
	}
	if len(path) > 1 {
		if child == nil && slices.ContainsFunc(path[1:], func(s string) bool { return strings.HasSuffix(s, "[]") }) {
			return nil // there is no item
		}
		if _, ok := child.(map[string]any); !ok && child != nil {
			return nil // it is reported as another type
		}
		return lacks(child, path[1:], at)
	}
	switch v := child.(type) {
	case nil:
		return []string{at}
	case string:
		if v == "" {
			return []string{at}
		}
	case []any:
		if len(v) == 0 {
			return []string{at}
		}
	}
	return nil
}

// checkValues finds values that an API server refuses in an object of Kubernetes' own types.
func checkValues(u *unstructured.Unstructured) []error {
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Secret"}:
		return append(notBase64(u, "data", "; plain text goes into stringData"), notText(u, "stringData")...)
	case schema.GroupKind{Kind: "ConfigMap"}:
		return append(notBase64(u, "binaryData", "; plain text goes into data"), notText(u, "data")...)
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "ReplicaSet"},
		schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return unselected(u, field(u.Object, "spec", "selector"))
	case schema.GroupKind{Kind: "ReplicationController"}:
		if selector := field(u.Object, "spec", "selector"); len(selector) > 0 {
			return unselected(u, map[string]any{"matchLabels": selector})
		}
	}
	return nil
}

// notBase64 finds values of a mapping that are not in base64.
func notBase64(u *unstructured.Unstructured, name, hint string) (errs []error) {
	values := field(u.Object, name)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		text, ok := values[key].(string)
		if _, err := base64.StdEncoding.DecodeString(text); ok && err != nil {
			errs = append(errs, fmt.Errorf("%s.%s is not base64: %w%s", name, key, err, hint))
		}
	}
	return errs
}

// notText finds values of a mapping that are not texts.
func notText(u *unstructured.Unstructured, name string) (errs []error) {
	values := field(u.Object, name)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch v := values[key].(type) {
		case nil, string:
		default:
			errs = append(errs, fmt.Errorf("%s.%s must be text: quote %v", name, key, v))
		}
	}
	return errs
}

// unselected reports a selector that does not match the template's labels.
func unselected(u *unstructured.Unstructured, selector map[string]any) []error {
	template := field(u.Object, "spec", "template")
	if selector == nil || template == nil {
		return nil // which is reported
	}
	var s metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(selector, &s); err != nil {
		return nil // reported with its type
	}
	parsed, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return []error{fmt.Errorf("spec.selector: %w", err)}
	}
	has := labels.Set{}
	for key, value := range field(template, "metadata", "labels") {
		text, ok := value.(string)
		if !ok {
			return nil // reported with its type
		}
		has[key] = text
	}
	switch {
	case parsed.Empty():
		return []error{fmt.Errorf("spec.selector is empty")}
	case !parsed.Matches(has):
		return []error{fmt.Errorf("spec.selector (%s) does not match spec.template.metadata.labels (%s)", parsed, has)}
	}
	return nil
}
