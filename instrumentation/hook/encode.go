package hook

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
)

// Lazy is an object that takes work to come by. Encode calls it.
type Lazy func() interface{}

// encoder holds a func(interface{}) ([]byte, error).
var encoder atomic.Value

// SetEncoder replaces encoding/json for objects that are not JSON by themselves: an API server's objects are internal
// types without tags. The encoder answers nil for what it does not know; that is then written by encoding/json.
func SetEncoder(f func(object interface{}) ([]byte, error)) { encoder.Store(f) }

// Encode writes an object as JSON, nil if there is none or it cannot be written. A []byte is taken for JSON if it is an
// object; a Lazy is called first.
func Encode(object interface{}) (data []byte) {
	defer func() {
		if r := recover(); r != nil {
			troubled(fmt.Sprintf("encode %T: %v", object, r))
			data = nil
		}
	}()
	if lazy, ok := object.(Lazy); ok {
		object = lazy()
	}
	switch t := object.(type) {
	case nil:
		return nil
	case []byte:
		if len(t) == 0 || t[0] != '{' {
			return nil
		}
		return t
	}
	if IsNil(object) {
		return nil
	}
	if f, ok := encoder.Load().(func(interface{}) ([]byte, error)); ok {
		data, err := f(object)
		if err != nil {
			debugf("encode %T: %v", object, err)
			return nil
		}
		if data != nil {
			return data
		}
	}
	data, err := json.Marshal(object)
	if err != nil {
		debugf("encode %T: %v", object, err)
		return nil
	}
	return data
}

// typeInfo is what a Go type tells of its API type.
type typeInfo struct {
	kind, group string
	groupKnown  bool
}

var types sync.Map // reflect.Type → typeInfo

// TypeOf tells the kind, in lower case, by the name of the Go type, and the group by its package where that is one of
// Kubernetes' own.
func TypeOf(object interface{}) (kind, group string, groupKnown bool) {
	t := reflect.TypeOf(object)
	if t == nil {
		return "", "", false
	}
	if cached, ok := types.Load(t); ok {
		info := cached.(typeInfo)
		return info.kind, info.group, info.groupKnown
	}
	elem := t
	for elem.Kind() == reflect.Ptr {
		elem = elem.Elem()
	}
	var info typeInfo
	if elem.Name() != "PartialObjectMetadata" { // stands for any kind
		info.kind = strings.ToLower(elem.Name())
		info.group, info.groupKnown = groupOf(elem.PkgPath())
	}
	types.Store(t, info)
	return info.kind, info.group, info.groupKnown
}

// Describe adds to o what the object tells of itself: its kind and group by its Go type, unless they are known, its
// namespace and name.
func Describe(o *Observation, object interface{}) {
	if u, ok := object.(interface {
		GetKind() string
		GetAPIVersion() string
	}); ok { // unstructured: its Go type says nothing
		if IsNil(object) {
			return
		}
		if o.Kind == "" && u.GetKind() != "" {
			o.Kind = strings.ToLower(u.GetKind())
			o.Group, o.GroupKnown = GroupOfVersion(u.GetAPIVersion()), true
		}
	} else if o.Kind == "" {
		kind, group, known := TypeOf(object)
		o.Kind = kind
		if !o.GroupKnown {
			o.Group, o.GroupKnown = group, known
		}
	}
	if namespace, name := nameOf(object); name != "" || namespace != "" {
		o.Namespace, o.Name = namespace, name
	}
}

// IsNil tells whether an object is nil, or a nil pointer of some type. Real code hands out such ones: controller-runtime a typed
// nil for a type that has no informer yet.
func IsNil(object interface{}) bool {
	if object == nil {
		return true
	}
	v := reflect.ValueOf(object)
	return v.Kind() == reflect.Ptr && v.IsNil()
}

// nameOf is the namespace and name of an object, or of one in JSON.
func nameOf(object interface{}) (namespace, name string) {
	switch t := object.(type) {
	case []byte:
		var about struct {
			Metadata struct{ Namespace, Name string }
		}
		if json.Unmarshal(t, &about) == nil {
			return about.Metadata.Namespace, about.Metadata.Name
		}
	case interface {
		GetNamespace() string
		GetName() string
	}:
		if !IsNil(object) {
			return t.GetNamespace(), t.GetName()
		}
	}
	return "", ""
}

// GroupOfVersion is the group in an apiVersion.
func GroupOfVersion(apiVersion string) string {
	if i := strings.IndexByte(apiVersion, '/'); i >= 0 {
		return apiVersion[:i]
	}
	return ""
}

// groups are the API groups that are not called like their package below k8s.io/api.
var groups = map[string]string{
	"admission":             "admission.k8s.io",
	"admissionregistration": "admissionregistration.k8s.io",
	"apidiscovery":          "apidiscovery.k8s.io",
	"apiserverinternal":     "internal.apiserver.k8s.io",
	"authentication":        "authentication.k8s.io",
	"authorization":         "authorization.k8s.io",
	"certificates":          "certificates.k8s.io",
	"coordination":          "coordination.k8s.io",
	"core":                  "",
	"discovery":             "discovery.k8s.io",
	"events":                "events.k8s.io",
	"flowcontrol":           "flowcontrol.apiserver.k8s.io",
	"imagepolicy":           "imagepolicy.k8s.io",
	"networking":            "networking.k8s.io",
	"node":                  "node.k8s.io",
	"rbac":                  "rbac.authorization.k8s.io",
	"resource":              "resource.k8s.io",
	"scheduling":            "scheduling.k8s.io",
	"storage":               "storage.k8s.io",
	"storagemigration":      "storagemigration.k8s.io",
}

func groupOf(pkg string) (group string, known bool) {
	for _, p := range []struct{ prefix, group string }{
		{"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions", "apiextensions.k8s.io"},
		{"k8s.io/kube-aggregator/pkg/apis/apiregistration", "apiregistration.k8s.io"},
		{"k8s.io/metrics/pkg/apis/metrics", "metrics.k8s.io"},
	} {
		if pkg == p.prefix || strings.HasPrefix(pkg, p.prefix+"/") {
			return p.group, true
		}
	}
	if !strings.HasPrefix(pkg, "k8s.io/api/") {
		return "", false
	}
	name := strings.TrimPrefix(pkg, "k8s.io/api/")
	if i := strings.IndexByte(name, '/'); i >= 0 {
		name = name[:i]
	}
	if g, ok := groups[name]; ok {
		return g, true
	}
	return name, true // apps, autoscaling, batch, extensions, policy
}
