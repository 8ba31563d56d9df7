package sieve

import (
	"testing"

	"gopkg.in/yaml.v3"
)

// Package plan tests the results of conversions, because it can read them.
func TestDetect(t *testing.T) {
	tests := []struct {
		text string
		want Format
	}{
		{"mode: stale-state", Modes},
		{"mode: x\nactions: []", None},
		{"workload: w\nactions: null", None}, // both formats have this, and mean the same
		{"actions: [{actionType: restartController, controllerLabel: a}]", Actions},
		{"actions: [{trigger: {definitions: [{condition: {conditionType: onTimeout}}]}}]", Actions},
		{"actions: [{trigger: {definitions: [{observationPoint: {when: x}}]}}]", Actions},
		{"actions: [{trigger: {definitions: [{condition: {triggerType: onTimeout, occurrence: 1}}]}}]", None},
		{"apiVersion: x\nactions: [{controllerLabel: a}]", None},
		{"[]", None},
		{"actions: [5, [a], {trigger: 5}]", None},
		{"a: &a [{controllerLabel: a}]\nactions: *a", Actions},
	}
	for _, tt := range tests {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(tt.text), &n); err != nil {
			t.Fatal(err)
		}
		if got := Detect(n.Content[0]); got != tt.want {
			t.Errorf("Detect(%s) = %v, want %v", tt.text, got, tt.want)
		}
	}
}
