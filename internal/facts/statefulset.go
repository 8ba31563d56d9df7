package facts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
)

// IsClaimOf reports whether a claim has the name of a StatefulSet's: that of a template, of the set, and a number.
func IsClaimOf(claim string, set map[string]any) bool {
	spec, _ := set["spec"].(map[string]any)
	templates, _ := spec["volumeClaimTemplates"].([]any)
	return slices.ContainsFunc(templates, func(t any) bool {
		template, _ := t.(map[string]any)
		name := metadata.Text(metadata.Of(template), "name") + "-" + metadata.Text(metadata.Of(set), "name") + "-"
		number, found := strings.CutPrefix(claim, name)
		_, err := strconv.Atoi(number)
		return found && err == nil
	})
}

// IsRollingOut reports whether a StatefulSet has pods of another revision than the newest.
func IsRollingOut(set map[string]any) bool {
	status, _ := set["status"].(map[string]any)
	current, _ := status["currentRevision"].(string)
	update, _ := status["updateRevision"].(string)
	if current == "" || update == "" || current == update {
		return false
	}
	if !UpdatedByHand(set) {
		return true
	}
	updated, _ := status["updatedReplicas"].(float64)
	replicas, _ := status["replicas"].(float64)
	return updated < replicas
}

// UpdatedByHand reports whether a StatefulSet's pods are updated only when they are deleted. Then the StatefulSet
// controller leaves status.currentRevision, and the replicas of that revision, at those before the first update, also
// when all pods have been updated (completeRollingUpdate in Kubernetes' stateful_set_utils.go).
func UpdatedByHand(set map[string]any) bool {
	spec, _ := set["spec"].(map[string]any)
	strategy, _ := spec["updateStrategy"].(map[string]any)
	return strategy["type"] == "OnDelete"
}
