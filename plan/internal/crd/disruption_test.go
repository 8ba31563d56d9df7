package crd

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func TestDisruption(t *testing.T) {
	for _, test := range []struct {
		spec string
		want []string // path: message (a part of it)
	}{
		{"{selector: {app: x}, apiFault: {verbs: [update], delay: 3s}}", nil},
		{"{selector: {app: x}, count: 50%, network: {delay: 10ms, hosts: [{host: a.example, port: 443}]}}", nil},
		{"{}", []string{": selector or advancedSelector", ": at least one kind"}},
		{"{selector: {app: x}, apiFault: {delay: 3}}", []string{"apiFault.delay: got number, want string"}},
		{"{selector: {app: x}, apiFault: {verbs: [put], hang: true}}",
			[]string{"apiFault.verbs.0: value must be one of"}},
		{"{selector: {app: x}, apiFault: {hang: true, lost: true}}",
			[]string{"apiFault: status, hang and lost exclude"}},
		{"{selector: {app: x}, apiFault: {hangs: true}}", []string{"apiFault: additional properties 'hangs'"}},
		{"{selector: {app: x}, level: node, containerFailure: {}}", []string{": containerFailure needs level: pod"}},
		{"{selector: {app: x}, count: 120%, containerFailure: {}}", []string{"count: count must be a number"}},
		{"{selector: {app: x}, count: -1, containerFailure: {}}", []string{"count: count must be a number"}},
		{"{selector: {app: x}, containerFailure: {}, pulse: {activeDuration: 1ms, dormantDuration: 1s}}",
			[]string{"pulse: activeDuration and dormantDuration must be at least 100ms"}},
		{"{selector: {app: x}, dns: {records: [{name: a, fault: drop, addresses: [1.2.3.4]}]}}",
			[]string{"dns.records.0: either addresses or fault"}},
		{"{selector: {app: x}, podReplacement: {}, dns: {records: [{name: a, fault: drop}]}}",
			[]string{": podReplacement cannot be combined"}},
	} {
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(test.spec), &spec); err != nil {
			t.Fatal(err)
		}
		got := Disruption().Validate(spec)
		if len(got) != len(test.want) {
			t.Errorf("%s: %v, want %v", test.spec, got, test.want)
			continue
		}
		for i, m := range got {
			if text := strings.Join(m.Path, ".") + ": " + m.Message; !strings.HasPrefix(text, test.want[i]) {
				t.Errorf("%s: %q, want %q", test.spec, text, test.want[i])
			}
		}
	}
}
