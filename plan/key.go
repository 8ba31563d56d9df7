package plan

import (
	"fmt"
	"strings"
)

// validType, validGroup and validNamespace are written by hand rather than as regular expressions: reading a plan calls
// them for every key.

func validType(s string) bool {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func validGroup(s string) bool { return validName(s, true) }

func validNamespace(s string) bool { return validName(s, false) }

// validName reports whether s consists of lower case letters, digits, "-" and, if dots is set, ".", and neither begins
// nor ends with "-" or ".".
func validName(s string, dots bool) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case (c == '-' || c == '.' && dots) && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}

// builtin lists common types of Kubernetes itself: their plural, and whether they are namespaced.
var builtin = map[string]struct {
	plural     string
	namespaced bool
}{
	"pod": {"pods", true}, "service": {"services", true}, "configmap": {"configmaps", true},
	"secret": {"secrets", true},
	"event":  {"events", true}, "endpoints": {"endpoints", true}, "serviceaccount": {"serviceaccounts", true},
	"persistentvolumeclaim": {"persistentvolumeclaims", true},
	"replicationcontroller": {"replicationcontrollers", true},
	"deployment":            {"deployments", true}, "replicaset": {"replicasets", true},
	"statefulset": {"statefulsets", true},
	"daemonset":   {"daemonsets", true}, "controllerrevision": {"controllerrevisions", true}, "job": {"jobs", true},
	"cronjob": {"cronjobs", true}, "poddisruptionbudget": {"poddisruptionbudgets", true},
	"ingress":       {"ingresses", true},
	"networkpolicy": {"networkpolicies", true}, "lease": {"leases", true}, "endpointslice": {"endpointslices", true},
	"role": {"roles", true}, "rolebinding": {"rolebindings", true},
	"horizontalpodautoscaler": {"horizontalpodautoscalers", true},
	"node":                    {"nodes", false}, "namespace": {"namespaces", false},
	"persistentvolume": {"persistentvolumes", false},
	"clusterrole":      {"clusterroles", false}, "clusterrolebinding": {"clusterrolebindings", false},
	"storageclass": {"storageclasses", false}, "priorityclass": {"priorityclasses", false},
	"customresourcedefinition": {"customresourcedefinitions", false}, "volumeattachment": {"volumeattachments", false},
}

var singular = func() map[string]string {
	m := map[string]string{}
	for s, b := range builtin {
		if b.plural != s {
			m[b.plural] = s
		}
	}
	return m
}()

// ParseResourceKey reads type[.group]/namespace/name. The namespace is empty for cluster scope; it may be "*", and the
// name may contain "*".
func ParseResourceKey(s string) (ResourceKey, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return ResourceKey{}, fmt.Errorf("%q is not a type/namespace/name such as pod/default/web-0 or node//n1", s)
	}
	k := ResourceKey{Namespace: parts[1], Name: parts[2]}
	k.Type, k.Group, _ = strings.Cut(parts[0], ".")
	switch lower := strings.ToLower(k.Type); {
	case k.Type == "":
		return ResourceKey{}, fmt.Errorf("%q has no type; write type/namespace/name", s)
	case singular[lower] != "" && k.Group == "":
		return ResourceKey{}, fmt.Errorf("%q: a type must be singular; write %s/%s/%s", s, singular[lower],
			parts[1], parts[2])
	case lower != k.Type:
		return ResourceKey{}, fmt.Errorf("%q: a type must be lower case; write %s/%s/%s", s, strings.ToLower(parts[0]),
			parts[1], parts[2])
	case !validType(k.Type):
		return ResourceKey{}, fmt.Errorf("%q: %q is not a resource type", s, k.Type)
	case strings.Contains(parts[0], ".") && !validGroup(k.Group):
		return ResourceKey{}, fmt.Errorf("%q: %q is not an API group", s, k.Group)
	case k.Namespace != "" && k.Namespace != "*" && !validNamespace(k.Namespace):
		return ResourceKey{}, fmt.Errorf("%q: %q is not a namespace", s, k.Namespace)
	case k.Name == "":
		return ResourceKey{}, fmt.Errorf("%q has no name; write * for all", s)
	case strings.ContainsAny(k.Name, " \t\r\n%"):
		return ResourceKey{}, fmt.Errorf("%q: %q is not a name", s, k.Name)
	}
	if b, ok := builtin[k.Type]; ok && k.Group == "" {
		if b.namespaced && k.Namespace == "" {
			return ResourceKey{}, fmt.Errorf("%q: a %s needs a namespace; write %s/default/%s", s, k.Type,
				k.Type, k.Name)
		}
		if !b.namespaced && k.Namespace != "" && k.Namespace != "*" {
			return ResourceKey{}, fmt.Errorf("%q: a %s has no namespace; write %s//%s", s, k.Type, k.Type, k.Name)
		}
	}
	return k, nil
}

// IsZero reports whether the key is empty.
func (k ResourceKey) IsZero() bool { return k == ResourceKey{} }

// HasWildcard reports whether the key may match several objects.
func (k ResourceKey) HasWildcard() bool { return k.Namespace == "*" || strings.Contains(k.Name, "*") }

// Matches reports whether the key matches the object. The type must be singular and lower case; groups are compared
// only if both the key and the caller have one. The namespace does not count if the key has none: a client may give one
// for an object that is in none.
func (k ResourceKey) Matches(typ, group string, groupKnown bool, namespace, name string) bool {
	return k.Type == typ &&
		(k.Group == "" || !groupKnown || k.Group == group) &&
		(k.Namespace == "*" || k.Namespace == "" || k.Namespace == namespace) &&
		glob(k.Name, name)
}

// glob matches a pattern in which "*" matches any sequence of characters.
func glob(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
