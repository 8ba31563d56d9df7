package scaffold

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// nodeLabels are labels that simulated nodes have, and nodeResources what they offer. Their values are not compared.
var (
	nodeLabels    = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable}
	nodeResources = []string{
		string(corev1.ResourceCPU), string(corev1.ResourceMemory), string(corev1.ResourceEphemeralStorage),
	}
)

// misplaced counts the pod templates in a file for which no simulated node would do: they ask for a label or a device
// that special machines have. Such a sample's pods wait for ever.
func misplaced(f *file) (count int) {
	f.eachMapping(func(m map[string]any) bool {
		_, isPod := m["containers"].([]any)
		if isPod = isPod && needsSpecialNode(m); isPod {
			count++
		}
		return !isPod
	})
	return count
}

// eachMapping calls visit with each mapping in the file's objects. It visits what is in one if visit returns true.
func (f *file) eachMapping(visit func(m map[string]any) (within bool)) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if !visit(v) {
				return
			}
			for _, item := range v {
				walk(item)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	for _, u := range f.objects {
		walk(u.Object)
	}
}

// needsSpecialNode reports whether the spec of a pod asks for a label or a device that simulated nodes do not have.
func needsSpecialNode(spec map[string]any) bool {
	selector, _ := spec["nodeSelector"].(map[string]any)
	for label := range selector {
		if !slices.Contains(nodeLabels, label) {
			return true
		}
	}
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := spec[field].([]any)
		for _, item := range list {
			container, _ := item.(map[string]any)
			resources, _ := container["resources"].(map[string]any)
			for _, part := range []string{"limits", "requests"} {
				amounts, _ := resources[part].(map[string]any)
				for name := range amounts {
					if !slices.Contains(nodeResources, strings.ToLower(name)) {
						return true
					}
				}
			}
		}
	}
	return false
}
