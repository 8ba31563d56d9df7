package judge

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// Regression: a workload waited for what Hierarchical Namespaces removes with a namespace, and nothing said why the
// namespace stayed.
func TestWhyNamespacesStay(t *testing.T) {
	entry := func(event, name, meta, conditions string) record.HistoryEntry {
		return record.HistoryEntry{Type: "namespace", Name: name, Event: event, Object: []byte(
			`{"kind": "Namespace", "metadata": {"name": "` + name + `"` + meta + `}, "status": {"conditions": [` +
				conditions + `]}}`)}
	}
	const marked = `, "deletionTimestamp": "2026-01-01T00:00:00Z"`
	const failed = `{"type": "NamespaceDeletionDiscoveryFailure", "status": "True",
			"message": "no list.example.com/v1"},
		{"type": "NamespaceContentRemaining", "status": "False", "message": "all removed"}`
	e := Evidence{History: []record.HistoryEntry{
		entry(record.Created, "kept", "", ""), entry(record.Updated, "kept", marked, failed),
		entry(record.Updated, "gone", marked, failed), entry(record.Deleted, "gone", marked, failed),
		entry(record.Existing, "alive", "", failed),
	}}
	found := []record.Finding{{Judge: record.JudgeWorkload, Detail: "not within 1m"}, {Judge: record.JudgeInvariant}}
	e.explainNamespaces(found)
	if want := "not within 1m\nnamespace//kept is not deleted: no list.example.com/v1"; found[0].Detail != want ||
		strings.Contains(found[1].Detail, "kept") {
		t.Errorf("%q, want %q; the other: %q", found[0].Detail, want, found[1].Detail)
	}
}
