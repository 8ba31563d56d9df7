package manifests

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/objects"
)

// removal says how to convert an object in an API version that Kubernetes no longer serves.
type removal struct {
	to schema.GroupVersion
	// change makes the object mean in the new version what it means in the old one, including defaults; nil if both
	// versions have the same meaning. The returned notes are for the user.
	change func(u *unstructured.Unstructured) (notes []string, err error)
	gone   string // instead of to: why an object that has no successor is left out
}

// removals by apiVersion and kind.
var removals = map[string]map[string]removal{
	"admissionregistration.k8s.io/v1beta1": {
		"MutatingWebhookConfiguration":   {to: gv("admissionregistration.k8s.io/v1"), change: webhooks},
		"ValidatingWebhookConfiguration": {to: gv("admissionregistration.k8s.io/v1"), change: webhooks},
	},
	"apiextensions.k8s.io/v1beta1": {
		"CustomResourceDefinition": {to: gv("apiextensions.k8s.io/v1"), change: definition},
	},
	"apiregistration.k8s.io/v1beta1": alike("apiregistration.k8s.io/v1", "APIService"),
	"apps/v1beta1": {
		"ControllerRevision": {to: gv("apps/v1")},
		"Deployment": {to: gv("apps/v1"), change: workload(selectsTemplate,
			defaults{"revisionHistoryLimit": int64(2)})},
		"StatefulSet": {to: gv("apps/v1"), change: workload(selectsTemplate, updatesOnDelete)},
	},
	"apps/v1beta2": alike("apps/v1", "ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
	"autoscaling/v2beta1": {
		"HorizontalPodAutoscaler": {to: gv("autoscaling/v2"), change: autoscaler},
	},
	"autoscaling/v2beta2": alike("autoscaling/v2", "HorizontalPodAutoscaler"),
	"batch/v1beta1":       alike("batch/v1", "CronJob"),
	"batch/v2alpha1":      alike("batch/v1", "CronJob"),
	"certificates.k8s.io/v1beta1": {
		"CertificateSigningRequest": {to: gv("certificates.k8s.io/v1"), change: signingRequest},
	},
	"coordination.k8s.io/v1beta1": alike("coordination.k8s.io/v1", "Lease"),
	"discovery.k8s.io/v1beta1": {
		"EndpointSlice": {to: gv("discovery.k8s.io/v1"), change: endpointSlice},
	},
	"extensions/v1beta1": {
		"DaemonSet": {to: gv("apps/v1"),
			change: workload(selectsTemplate, updatesOnDelete, without("templateGeneration"))},
		"Deployment": {to: gv("apps/v1"),
			change: workload(selectsTemplate, rollsOneByOne, without("rollbackTo"), defaults{
				// These values mean "no limit", as if unset.
				"progressDeadlineSeconds": int64(math.MaxInt32), "revisionHistoryLimit": int64(math.MaxInt32),
			})},
		"Ingress":           {to: gv("networking.k8s.io/v1"), change: ingress},
		"NetworkPolicy":     {to: gv("networking.k8s.io/v1")},
		"PodSecurityPolicy": {gone: "removed in Kubernetes 1.25"},
		"ReplicaSet":        {to: gv("apps/v1"), change: workload(selectsTemplate)},
	},
	"networking.k8s.io/v1beta1": {
		"Ingress":      {to: gv("networking.k8s.io/v1"), change: ingress},
		"IngressClass": {to: gv("networking.k8s.io/v1")},
	},
	"node.k8s.io/v1alpha1": {"RuntimeClass": {to: gv("node.k8s.io/v1"), change: runtimeClass}},
	"node.k8s.io/v1beta1":  alike("node.k8s.io/v1", "RuntimeClass"),
	"policy/v1beta1": {
		"PodDisruptionBudget": {to: gv("policy/v1"), change: disruptionBudget},
		"PodSecurityPolicy":   {gone: "removed in Kubernetes 1.25"},
	},
	"rbac.authorization.k8s.io/v1alpha1": {
		"ClusterRole":        {to: gv("rbac.authorization.k8s.io/v1")},
		"ClusterRoleBinding": {to: gv("rbac.authorization.k8s.io/v1"), change: alphaBinding},
		"Role":               {to: gv("rbac.authorization.k8s.io/v1")},
		"RoleBinding":        {to: gv("rbac.authorization.k8s.io/v1"), change: alphaBinding},
	},
	"rbac.authorization.k8s.io/v1beta1": alike("rbac.authorization.k8s.io/v1",
		"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
	"scheduling.k8s.io/v1alpha1": alike("scheduling.k8s.io/v1", "PriorityClass"),
	"scheduling.k8s.io/v1beta1":  alike("scheduling.k8s.io/v1", "PriorityClass"),
	"storage.k8s.io/v1alpha1":    alike("storage.k8s.io/v1", "CSIStorageCapacity", "VolumeAttachment"),
	"storage.k8s.io/v1beta1": alike("storage.k8s.io/v1",
		"CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment"),
}

func gv(text string) schema.GroupVersion {
	group, version, _ := strings.Cut(text, "/")
	return schema.GroupVersion{Group: group, Version: version}
}

// alike lists kinds that have the same fields and defaults in both versions.
func alike(to string, kinds ...string) map[string]removal {
	all := map[string]removal{}
	for _, kind := range kinds {
		all[kind] = removal{to: gv(to)}
	}
	return all
}

// Served converts objects in API versions that Kubernetes no longer serves to versions that it serves, and returns all
// others as they are. A converted object keeps its meaning, including the old version's defaults. Objects of a type
// without a successor are left out. The notes say what was done, once for each type. The list's objects are not
// changed.
func Served(list []*unstructured.Unstructured) (served []*unstructured.Unstructured, notes []string, err error) {
	all := make([]objects.Located, len(list))
	for i, u := range list {
		all[i] = objects.Located{Unstructured: u}
	}
	located, notes, err := convertAll(all)
	return Bare(located), notes, err
}

// ReadServed is [Read] and [Served]; its errors name file and line.
func ReadServed(path string) (list []*unstructured.Unstructured, notes []string, err error) {
	all, notes, err := readServed(path)
	return Bare(all), notes, err
}

func readServed(path string) (list []objects.Located, notes []string, err error) {
	all, _, err := read(path, false)
	if err != nil {
		return nil, nil, err
	}
	return convertAll(all)
}

// ReadLocal is [ReadServed] without what a kustomization and its bases would load from the network, which it returns.
func ReadLocal(path string) (list []*unstructured.Unstructured, remote []string, err error) {
	all, remote, err := read(path, true)
	if err != nil {
		return nil, nil, err
	}
	all, _, err = convertAll(all)
	return Bare(all), remote, err
}

func convertAll(list []objects.Located) (served []objects.Located, notes []string, err error) {
	var errs []error
	for _, l := range list {
		r, ok := removals[l.GetAPIVersion()][l.GetKind()]
		if !ok {
			served = append(served, l)
			continue
		}
		if r.gone != "" {
			notes = append(notes, fmt.Sprintf("%s is left out: %s", describe(l.Unstructured), r.gone))
			continue
		}
		u, err := objects.FromMap(l.Object) // a copy, with the number types that unstructured objects need
		if err != nil {
			errs = append(errs, err)
			continue
		}
		old := u.GroupVersionKind()
		u.SetAPIVersion(r.to.String())
		to := r.to.String()
		if r.to.Group == old.Group {
			to = r.to.Version
		}
		notes = append(notes, fmt.Sprintf("%s %s is applied as %s", old.Kind, old.GroupVersion(), to))
		if r.change != nil {
			more, err := r.change(u)
			for _, note := range more {
				notes = append(notes, describe(l.Unstructured)+": "+note)
			}
			if err != nil {
				err = fmt.Errorf("%s %s cannot be applied as %s: %w", old.GroupVersion(), describe(l.Unstructured), to,
					err)
				if l.Where != "" {
					err = fmt.Errorf("%s: %w", l.Where, err)
				}
				errs = append(errs, err)
				continue
			}
		}
		l.Unstructured = u
		served = append(served, l)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return served, onceEach(notes), nil
}

// onceEach keeps the first of equal notes.
func onceEach(notes []string) []string {
	var all []string
	for _, note := range notes {
		if !slices.Contains(all, note) {
			all = append(all, note)
		}
	}
	return all
}

// field returns the mapping at a path, or nil if there is none: a value of another type is reported when the object is
// checked.
func field(m map[string]any, path ...string) map[string]any {
	for _, name := range path {
		m, _ = m[name].(map[string]any)
	}
	return m
}

// made returns the mapping at a path and adds missing parts; nil if there is another value.
func made(m map[string]any, path ...string) map[string]any {
	for _, name := range path {
		if m == nil {
			return nil
		}
		if m[name] == nil {
			m[name] = map[string]any{}
		}
		m, _ = m[name].(map[string]any)
	}
	return m
}

// mappings returns the mappings among a list's items.
func mappings(list any) []map[string]any {
	items, _ := list.([]any)
	var all []map[string]any
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// setDefault sets a field if it is not set.
func setDefault(m map[string]any, name string, value any) {
	if m != nil && (m[name] == nil || m[name] == "") {
		m[name] = value
	}
}

// move renames a field.
func move(from map[string]any, name string, to map[string]any, newName string) {
	if value, ok := from[name]; ok {
		delete(from, name)
		to[newName] = value
	}
}

// A workloadChange changes the spec of an object that has a template.
type workloadChange interface {
	change(u *unstructured.Unstructured, spec map[string]any)
}

type workloadChangeFunc func(u *unstructured.Unstructured, spec map[string]any)

func (f workloadChangeFunc) change(u *unstructured.Unstructured, spec map[string]any) { f(u, spec) }

// defaults of a spec.
type defaults map[string]any

func (d defaults) change(_ *unstructured.Unstructured, spec map[string]any) {
	for name, value := range d {
		setDefault(spec, name, value)
	}
}

// without removes fields that have no successor: they described a request, not a state.
type without string

func (w without) change(_ *unstructured.Unstructured, spec map[string]any) { delete(spec, string(w)) }

var (
	// selectsTemplate: selector and labels defaulted to the template's.
	selectsTemplate = workloadChangeFunc(func(u *unstructured.Unstructured, spec map[string]any) {
		labels := field(spec, "template", "metadata", "labels")
		if labels == nil {
			return
		}
		setDefault(spec, "selector", map[string]any{"matchLabels": maps.Clone(labels)})
		if len(u.GetLabels()) == 0 {
			if metadata := made(u.Object, "metadata"); metadata != nil {
				metadata["labels"] = maps.Clone(labels)
			}
		}
	})
	updatesOnDelete = workloadChangeFunc(func(_ *unstructured.Unstructured, spec map[string]any) {
		setDefault(made(spec, "updateStrategy"), "type", "OnDelete")
	})
	// rollsOneByOne: the default was 1; 25 % came later.
	rollsOneByOne = workloadChangeFunc(func(_ *unstructured.Unstructured, spec map[string]any) {
		strategy := made(spec, "strategy")
		if kind := strategy["type"]; kind != nil && kind != "" && kind != "RollingUpdate" {
			return
		}
		update := made(strategy, "rollingUpdate")
		setDefault(update, "maxUnavailable", int64(1))
		setDefault(update, "maxSurge", int64(1))
	})
)

func workload(changes ...workloadChange) func(*unstructured.Unstructured) ([]string, error) {
	return func(u *unstructured.Unstructured) ([]string, error) {
		if spec := field(u.Object, "spec"); spec != nil {
			for _, c := range changes {
				c.change(u, spec)
			}
		}
		return nil, nil
	}
}

// webhooks keeps the defaults of v1beta1, and sets what v1 requires.
func webhooks(u *unstructured.Unstructured) (notes []string, err error) {
	for _, webhook := range mappings(u.Object["webhooks"]) {
		setDefault(webhook, "failurePolicy", "Ignore")
		setDefault(webhook, "matchPolicy", "Exact")
		setDefault(webhook, "timeoutSeconds", int64(30))
		if versions, _ := webhook["admissionReviewVersions"].([]any); len(versions) == 0 {
			webhook["admissionReviewVersions"] = []any{"v1beta1"}
		}
		setDefault(webhook, "sideEffects", "Unknown")
		if effects := webhook["sideEffects"]; effects == "Unknown" || effects == "Some" {
			webhook["sideEffects"] = "None"
			notes = append(notes, fmt.Sprintf("webhook %v: sideEffects is %v, which v1 refuses; it is applied as None",
				webhook["name"], effects))
		}
	}
	return notes, nil
}

// ingress converts backends to their new form and sets the path type that all paths had implicitly.
func ingress(u *unstructured.Unstructured) ([]string, error) {
	spec := field(u.Object, "spec")
	if spec == nil {
		return nil, nil
	}
	move(spec, "backend", spec, "defaultBackend")
	ingressBackend(field(spec, "defaultBackend"))
	for _, rule := range mappings(spec["rules"]) {
		for _, path := range mappings(field(rule, "http")["paths"]) {
			setDefault(path, "pathType", "ImplementationSpecific")
			ingressBackend(field(path, "backend"))
		}
	}
	return nil, nil
}

func ingressBackend(backend map[string]any) {
	name, hasName := backend["serviceName"]
	port, hasPort := backend["servicePort"]
	if !hasName && !hasPort {
		return
	}
	service := map[string]any{}
	if hasName {
		service["name"] = name
	}
	switch port.(type) {
	case nil:
	case string:
		service["port"] = map[string]any{"name": port}
	default:
		service["port"] = map[string]any{"number": port}
	}
	delete(backend, "serviceName")
	delete(backend, "servicePort")
	backend["service"] = service
}

// anyPod is a label key that Kubernetes' conversions use: an empty selector selects no pod in v1beta1 and all pods in
// v1.
const anyPod = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

func disruptionBudget(u *unstructured.Unstructured) ([]string, error) {
	spec := field(u.Object, "spec")
	selector := field(spec, "selector")
	if selector == nil {
		return nil, nil // matches no pod in either version
	}
	labels, _ := selector["matchLabels"].(map[string]any)
	expressions, _ := selector["matchExpressions"].([]any)
	if len(labels) == 0 && len(expressions) == 0 {
		spec["selector"] = map[string]any{"matchExpressions": []any{map[string]any{"key": anyPod,
			"operator": "Exists"}}}
		return []string{"its empty selector matches no pod; it is applied as one that matches none in v1"}, nil
	}
	if len(labels) == 0 && len(expressions) == 1 {
		if e, _ := expressions[0].(map[string]any); e["key"] == anyPod && e["operator"] == "DoesNotExist" {
			spec["selector"] = map[string]any{}
		}
	}
	return nil, nil
}

// alphaBinding converts the API groups of subjects. The user * stood for all authenticated users.
func alphaBinding(u *unstructured.Unstructured) ([]string, error) {
	for _, subject := range mappings(u.Object["subjects"]) {
		version, _ := subject["apiVersion"].(string)
		delete(subject, "apiVersion")
		switch group, _, _ := strings.Cut(version, "/"); subject["kind"] {
		case "ServiceAccount":
		case "User", "Group":
			subject["apiGroup"] = "rbac.authorization.k8s.io"
		default:
			subject["apiGroup"] = group
		}
		if subject["kind"] == "User" && subject["name"] == "*" {
			subject["kind"], subject["name"] = "Group", "system:authenticated"
		}
	}
	return nil, nil
}

func signingRequest(u *unstructured.Unstructured) ([]string, error) {
	spec := field(u.Object, "spec")
	setDefault(spec, "usages", []any{"digital signature", "key encipherment"})
	if name := spec["signerName"]; name == nil || name == "" || name == "kubernetes.io/legacy-unknown" {
		return nil, errors.New("spec.signerName must name a signer; v1 has no legacy signer")
	}
	return nil, nil
}

// runtimeClass: v1alpha1 had a spec.
func runtimeClass(u *unstructured.Unstructured) ([]string, error) {
	spec := field(u.Object, "spec")
	move(spec, "runtimeHandler", u.Object, "handler")
	move(spec, "overhead", u.Object, "overhead")
	move(spec, "scheduling", u.Object, "scheduling")
	delete(u.Object, "spec")
	return nil, nil
}

// endpointSlice: zone and node were labels of the topology.
func endpointSlice(u *unstructured.Unstructured) (notes []string, err error) {
	for _, endpoint := range mappings(u.Object["endpoints"]) {
		topology := field(endpoint, "topology")
		move(topology, "topology.kubernetes.io/zone", endpoint, "zone")
		move(topology, "kubernetes.io/hostname", endpoint, "nodeName")
		delete(endpoint, "topology")
		for _, label := range slices.Sorted(maps.Keys(topology)) {
			notes = append(notes, fmt.Sprintf("topology key %s is left out; v1 has no field for it", label))
		}
	}
	return notes, nil
}

// autoscaler converts metrics to their new form: what is measured, and the target.
func autoscaler(u *unstructured.Unstructured) ([]string, error) {
	for _, metric := range mappings(field(u.Object, "spec")["metrics"]) {
		for _, name := range []string{"resource", "containerResource"} {
			if m := field(metric, name); m != nil {
				metricTarget(m, metricValue{"targetAverageValue", "averageValue"},
					metricValue{"targetAverageUtilization", "averageUtilization"})
			}
		}
		if m := field(metric, "pods"); m != nil {
			metricIdentifier(m, "metricName", "selector")
			metricTarget(m, metricValue{"targetAverageValue", "averageValue"})
		}
		if m := field(metric, "object"); m != nil {
			move(m, "target", m, "describedObject")
			metricIdentifier(m, "metricName", "selector")
			metricTarget(m, metricValue{"targetValue", "value"}, metricValue{"averageValue", "averageValue"})
		}
		if m := field(metric, "external"); m != nil {
			metricIdentifier(m, "metricName", "metricSelector")
			metricTarget(m, metricValue{"targetAverageValue", "averageValue"}, metricValue{"targetValue", "value"})
		}
	}
	delete(u.Object, "status") // the controller writes it, and its form has changed
	return nil, nil
}

// metricValue is the old and the new name of a target's field.
type metricValue struct{ old, name string }

func metricIdentifier(m map[string]any, name, selector string) {
	identifier := map[string]any{}
	move(m, name, identifier, "name")
	move(m, selector, identifier, "selector")
	m["metric"] = identifier
}

// metricTarget moves the values that are set into the target. The last of them decides the target's type.
func metricTarget(m map[string]any, values ...metricValue) {
	target := map[string]any{}
	for _, v := range values {
		if m[v.old] == nil {
			continue
		}
		target["type"] = strings.ToUpper(v.name[:1]) + v.name[1:]
		if v.name == "averageUtilization" {
			target["type"] = "Utilization"
		}
		move(m, v.old, target, v.name)
	}
	m["target"] = target
}
