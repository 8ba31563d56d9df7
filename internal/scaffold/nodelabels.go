package scaffold

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectedNode returns labels that a node needs to be selected by an object's first selector of nodes, other than those
// that simulated nodes have. It is nil if the object has no such selector, or if nothing is missing. A selector is a
// field whose name ends with nodeSelector; it is a label selector, or a mapping of labels, as in pods.
func selectedNode(object map[string]any) map[string]string {
	for _, selector := range nodeSelectors(object) {
		labels := map[string]string{}
		for _, r := range requirements(selector) {
			_, set := labels[r.Key]
			switch {
			case slices.Contains(nodeLabels, r.Key):
			case r.Operator == metav1.LabelSelectorOpIn && len(r.Values) > 0:
				labels[r.Key] = r.Values[0]
			case r.Operator == metav1.LabelSelectorOpExists && !set:
				labels[r.Key] = "true"
			}
		}
		if len(labels) > 0 && matches(selector, labels) {
			return labels
		}
	}
	return nil
}

// matches reports whether a node with the labels, and those of all simulated nodes, is selected.
func matches(selector map[string]any, labels map[string]string) bool {
	return !slices.ContainsFunc(requirements(selector), func(r metav1.LabelSelectorRequirement) bool {
		if slices.Contains(nodeLabels, r.Key) {
			return false
		}
		value, set := labels[r.Key]
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			return !set || !slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpNotIn:
			return set && slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpExists:
			return !set
		case metav1.LabelSelectorOpDoesNotExist:
			return set
		}
		return true
	})
}

// requirements are those of a label selector, or of a mapping of labels.
func requirements(selector map[string]any) (all []metav1.LabelSelectorRequirement) {
	var s metav1.LabelSelector
	_, labels := selector["matchLabels"].(map[string]any)
	_, expressions := selector["matchExpressions"].([]any)
	text, err := json.Marshal(selector)
	if err != nil {
		return nil
	}
	if labels || expressions {
		err = json.Unmarshal(text, &s)
	} else {
		err = json.Unmarshal(text, &s.MatchLabels)
	}
	if err != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, metav1.LabelSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[key]},
		})
	}
	return append(all, s.MatchExpressions...)
}

// nodeSelectors lists the selectors of nodes in a value, in the order of their fields' names.
func nodeSelectors(v any) (all []map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			selector, isMapping := v[name].(map[string]any)
			if isMapping && strings.HasSuffix(strings.ToLower(name), "nodeselector") {
				all = append(all, selector)
			} else {
				all = append(all, nodeSelectors(v[name])...)
			}
		}
	case []any:
		for _, item := range v {
			all = append(all, nodeSelectors(item)...)
		}
	}
	return all
}
