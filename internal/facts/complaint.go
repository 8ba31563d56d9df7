package facts

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
)

// Failures is a regular expression of words for states that do not get better by themselves.
const Failures = `fail|error|invalid|degraded`

// failed is in words for such states, and good are conditions that an object has that is as it must be.
var (
	failed = regexp.MustCompile(`(?i)` + Failures)
	good   = regexp.MustCompile(`^(Ready|Available|Healthy|Accepted|Valid|Synced|Reconciled|Active)$`)
)

// Complaint is what an object's own status says to be wrong; empty: nothing.
func Complaint(object map[string]any) string {
	status, _ := object["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	for _, item := range list {
		c, _ := item.(map[string]any)
		typ, is := metadata.Text(c, "type"), metadata.Text(c, "status")
		if is == "True" && failed.MatchString(typ) || is == "False" && good.MatchString(typ) {
			text := fmt.Sprintf("condition %s=%s", typ, is)
			if message := metadata.Text(c, "message"); message != "" {
				text += ": " + wording.FirstLine(message)
			} else if reason := metadata.Text(c, "reason"); reason != "" {
				text += " (" + reason + ")"
			}
			return text
		}
	}
	for _, name := range StateFields(status) {
		if text := metadata.Text(status, name); failed.MatchString(text) {
			return fmt.Sprintf("status.%s %s", name, wording.FirstLine(text))
		}
	}
	return ""
}

// stateField is the name of a field of a status whose text names a state, such as phase or jobDeploymentStatus.
var stateField = regexp.MustCompile(`^phase$|^state$|^status$|^health$|[a-z](Phase|State|Status|Health)$`)

// StateFields lists the fields of a status that name a state, sorted.
func StateFields(status map[string]any) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if text, _ := status[name].(string); text != "" && stateField.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}
