package judge

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/record"
)

// explainNamespaces adds to failed steps of the workload why namespaces are still there that are being deleted. What
// belongs to them waits, such as the custom resource that they were made for.
func (e Evidence) explainNamespaces(found []record.Finding) {
	why := e.keptNamespaces()
	for i := range found {
		if f := &found[i]; f.Judge == record.JudgeWorkload && len(why) > 0 {
			f.Detail = strings.TrimPrefix(f.Detail+"\n"+strings.Join(why, "\n"), "\n")
		}
	}
}

// keptNamespaces says of each such namespace what its conditions say, a line each, in the order of the history.
func (e Evidence) keptNamespaces() (lines []string) {
	last := map[string]string{} // by cluster and name; empty: it is gone, or nothing keeps it
	var order []string
	for i := range e.History {
		h := &e.History[i]
		if h.Type != "namespace" {
			continue
		}
		key := record.In(h.Cluster, "namespace//"+h.Name)
		if last[key] = keeps(h); !slices.Contains(order, key) {
			order = append(order, key)
		}
	}
	for _, key := range order {
		if last[key] != "" {
			lines = append(lines, key+" is not deleted: "+last[key])
		}
	}
	return lines
}

// keeps says what keeps a namespace that is being deleted, by its conditions; empty: nothing.
func keeps(h *record.HistoryEntry) string {
	var ns corev1.Namespace
	if h.Event == record.Deleted || json.Unmarshal(h.Object, &ns) != nil || ns.DeletionTimestamp == nil {
		return ""
	}
	var why []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			why = append(why, c.Message)
		}
	}
	return strings.Join(why, "; ")
}
