package manifests

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/trommel-dev/trommel/internal/objects"
)

// unknownField is the message of apimachinery's converter about a field that a type does not have.
var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// dropUnknown removes the fields of Kubernetes' own types that these do not have, as an API server does that is asked
// only to warn. It returns a warning for each. A server-side apply would refuse the object because of them. Nothing is
// removed for a version of Kubernetes that may know the fields.
func dropUnknown(list []objects.Located, kubernetes string) (warnings []string) {
	if newerThanTypes(kubernetes) {
		return nil
	}
	for _, l := range list {
		kind := l.GroupVersionKind()
		if !scheme.Scheme.Recognizes(kind) {
			continue
		}
		typed, err := scheme.Scheme.New(kind)
		if err != nil {
			continue
		}
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(l.DeepCopy().Object, typed, true)
		strict, ok := runtime.AsStrictDecodingError(err)
		if !ok {
			continue // the check reports other mistakes
		}
		for _, err := range strict.Errors() {
			m := unknownField.FindStringSubmatch(err.Error())
			if m == nil || !drop(l.Object, m[1]) {
				continue
			}
			warnings = append(warnings, fmt.Sprintf("%s: %s: %v; it is left out", l.At(m[1]), describe(l.Unstructured),
				err))
		}
	}
	return warnings
}

// DropUnknown removes the fields of Kubernetes' own types that these do not have, as reading a suite's manifests does.
func DropUnknown(list []*unstructured.Unstructured, kubernetes string) {
	for _, u := range list {
		dropUnknown([]objects.Located{{Unstructured: u}}, kubernetes)
	}
}

// drop removes the field at a path such as spec.containers[1].name. It reports whether there was one.
func drop(value any, path string) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			switch rest, ok := objects.AfterKey(path, key); {
			case ok && rest == "":
				delete(v, key)
				return true
			case ok && drop(item, rest):
				return true
			}
		}
	case []any:
		index, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(v) {
			return drop(v[i], strings.TrimPrefix(rest, "."))
		}
	}
	return false
}
