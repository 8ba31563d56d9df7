package remote

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/chaos/controller"
)

// Values are merged in order; whole numbers stay whole, and null stays, for Helm to take a default away.
func TestMergedValues(t *testing.T) {
	values := map[string]any{}
	for _, text := range []string{
		"", "null",
		"replicas: 5000000\nsafetyNets: {nodes: true, maxDuration: 1h}\nargs: [a, b]\nresources: {limits: {cpu: 1}}\n",
		`{"mode": "child", "safetyNets": {"nodes": false}, "args": ["c"], "resources": null}`,
	} {
		over, err := parseValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		values = Merged(values, over)
	}
	got, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"args":["c"],"mode":"child","replicas":5000000,"resources":null,` +
		`"safetyNets":{"maxDuration":"1h","nodes":false}}`
	if string(got) != want {
		t.Errorf("%s", got)
	}
	if _, ok := values["replicas"].(int64); !ok {
		t.Errorf("%T", values["replicas"])
	}
}

// Text that is not valid values is refused.
func TestParseValues(t *testing.T) {
	for text, want := range map[string]string{
		"[1]":            "want a map of values: ",
		"a: 1\na: 2":     `key "a" already set in map`,
		"mode: parent":   "mode: must be child, or left out: the controllers there are a child's",
		`{"mode": null}`: "mode: must be child, or left out: the controllers there are a child's",
	} {
		if _, err := parseValues([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// What is known of a cluster is what was seen there, and what came of the installation.
func TestOutcome(t *testing.T) {
	want := &wish{generation: 2, values: "{}"}
	older := wish{generation: 1, values: "{}"}
	there := state{known: true, reachable: verdict{ok: true}, installed: verdict{true, reasonInstalled, "seen"},
		ready: verdict{ok: true}}
	missing := there
	missing.installed, missing.ready = no("NotInstalled", "seen"), no("NotInstalled", "seen")
	unreachable := there
	unreachable.reachable = no("Unreachable", "")
	ours := controller.Release{Version: "v1"}
	for _, tt := range []struct {
		name    string
		came    outcome
		seen    state
		want    *wish
		reason  string
		ok      bool
		ready   bool
		pending bool
		keep    bool
	}{
		{"by hand", outcome{}, there, nil, reasonInstalled, true, true, false, false},
		{"restarted", outcome{}, there, want, "Installing", false, true, true, true},
		{"installed", outcome{known: true, of: *want, release: ours}, there, want, reasonInstalled, true, true, false,
			false},
		{"not seen yet", outcome{known: true, of: *want, release: ours}, missing, want, "Installing", false, false,
			true, false},
		{"being upgraded", outcome{known: true, of: older, release: ours}, there, want, reasonInstalled, true, true,
			true, false},
		{"upgrade failed", outcome{known: true, of: *want, release: ours, err: "x"}, there, want, "UpgradeFailed", true,
			true, false, false},
		{"half installed", outcome{known: true, of: *want, err: "x"}, there, want, "InstallFailed", false, false, false,
			false},
		{"somebody else's", outcome{known: true, of: *want, release: controller.Release{Foreign: "x"}}, there, want,
			"InstalledByHand", true, true, false, false},
		{"wrong values", outcome{}, there, &wish{wrong: "x"}, "InvalidValues", true, true, false, false},
		{"unreachable", outcome{known: true, of: older, release: ours}, unreachable, want, reasonInstalled, true, true,
			true, false},
	} {
		got := tt.came.on(tt.seen, tt.want)
		if got.installed.reason != tt.reason || got.installed.ok != tt.ok || got.ready.ok != tt.ready ||
			got.pending != tt.pending || got.keep != tt.keep {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	former := outcome{
		known: true, of: *want, release: controller.Release{Version: "v2", Former: "a is called b since v2"},
	}
	const words = "version v2 is installed; values with names of an older version: a is called b since v2"
	if got := former.on(there, want).installed; got.message != words {
		t.Errorf("%+v", got)
	}
}
