package hook

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
)

// Lazy is an object that is costly to make. Encode calls it.
type Lazy func() interface{}

// Delivered is an object as it was when it was delivered.
type Delivered struct {
	Namespace, Name string
	JSON            []byte // nil: it could not be written
}

// Deliver writes an object that nobody else has yet.
func Deliver(object interface{}) *Delivered {
	d := &Delivered{JSON: Encode(object)}
	d.Namespace, d.Name = nameOf(object)
	return d
}

// encoder holds a func(interface{}) ([]byte, error).
var encoder atomic.Value

// SetEncoder replaces encoding/json for objects without JSON tags, such as an API server's internal types. The encoder
// returns nil for an object that it does not know; encoding/json then writes it.
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
	case *Delivered:
		return t.JSON
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

// typeInfo is what a Go type says about its API type.
type typeInfo struct {
	kind, group string
	groupKnown  bool
}

var types sync.Map // reflect.Type → typeInfo

// TypeOf returns the kind, in lower case, by the name of the Go type, and the group by its package if that is one of
// Kubernetes.
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

// Describe adds to o what the object says about itself: its kind and group by its Go type, unless they are known, its
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

// IsNil reports whether an object is nil or a nil pointer. Real code passes such ones: controller-runtime a typed nil
// for a type that has no informer yet.
func IsNil(object interface{}) bool {
	if object == nil {
		return true
	}
	v := reflect.ValueOf(object)
	return v.Kind() == reflect.Ptr && v.IsNil()
}

// nameOf returns the namespace and name of an object, which may be JSON.
func nameOf(object interface{}) (namespace, name string) {
	switch t := object.(type) {
	case *Delivered:
		return t.Namespace, t.Name
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

// GroupOfVersion returns the group in an apiVersion.
func GroupOfVersion(apiVersion string) string {
	if i := strings.IndexByte(apiVersion, '/'); i >= 0 {
		return apiVersion[:i]
	}
	return ""
}

// groups lists the API groups whose names differ from those of their packages below k8s.io/api.
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
