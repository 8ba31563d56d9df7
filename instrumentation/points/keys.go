package points

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/trommel-dev/trommel/internal/buildcache"
)

// Inserted returns a name for everything that is changed in modules: their points, helpers and stand-ins.
func Inserted(modules ...string) (string, error) {
	var parts []string
	for _, m := range modules {
		for _, p := range points {
			if p.module == m {
				parts = append(parts, keyOf(p))
			}
		}
		for _, h := range helpers {
			if h.module == m {
				text, err := templates.ReadFile(h.template)
				if err != nil {
					return "", err
				}
				parts = append(parts, keyOf(h), string(text))
			}
		}
		replaced, err := standInsKey(m)
		if err != nil {
			return "", err
		}
		parts = append(parts, replaced...)
	}
	return buildcache.Digest(parts...), nil
}

// CallsKey returns a name for annotated calls.
func CallsKey(calls []AnnotatedCall) string { return keyOf(calls) }

// keyOf returns the Go syntax of a point, a helper or annotated calls, for the name of what is made from them.
//
// The names of types are those that they had in package instrumentation. With other names, every module, control plane
// and controller in users' caches would be built again.
func keyOf(v any) string {
	return typeOrText.ReplaceAllStringFunc(fmt.Sprintf("%#v", v), func(found string) string {
		if strings.HasPrefix(found, `"`) {
			return found
		}
		return "instrumentation."
	})
}

// typeOrText matches where the name of a type of this package begins, and whole strings, in which there is none.
var typeOrText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\bpoints\.`)
