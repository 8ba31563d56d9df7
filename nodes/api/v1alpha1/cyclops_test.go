package v1alpha1

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

const ours = `
nodeGroupName: g
selector: {matchLabels: {role: node}}
cycleSettings: {method: Wait, concurrency: 5, cyclingTimeout: 10h2m1s}
healthChecks:
- {endpoint: http://a/, tlsConfig: {rootCA: R1}}
preTerminationChecks:
- endpoint: https://b/
  tlsConfig: {rootCA: R2, certificate: C2, key: K2}
  healthCheck: {endpoint: https://c/, tlsConfig: {rootCA: R3, certificate: C3, key: K3}}
`

var inCyclops = strings.NewReplacer("cycleSettings:", "cycleNodeSettings:", "tlsConfig:", "tls:",
	"certificate:", "crt:", "- endpoint:", "- triggerEndpoint:").Replace(ours)

func decodedSpec(t *testing.T, into *CycleNodeRequestSpec, text string) {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// A spec with the names of Cyclops is the same as one with ours, also if an object is read into that was read before.
func TestNamesOfCyclops(t *testing.T) {
	var want, got CycleNodeRequestSpec
	decodedSpec(t, &want, ours)
	for range 2 {
		decodedSpec(t, &got, inCyclops)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-ours +Cyclops)\n%s", diff)
		}
		if both := got.BothNames(); both != nil {
			t.Errorf("given twice: %q", both)
		}
	}
	if want.PreTerminationChecks[0].TLSConfig.Certificate != "C2" || want.CycleSettings.Concurrency != 5 {
		t.Errorf("%+v", want)
	}
}

func TestBothNames(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"cycleNodeSettings: {}": "",
		"cycleSettings: {}":     "",
		"cyclenodesettings: {}": "", // not a name of ours

		"cycleSettings: {concurrency: 1}\ncycleNodeSettings: {}": "cycleSettings and cycleNodeSettings",

		"healthChecks: [{tls: {rootCA: A}, tlsConfig: {rootCA: A}}]": "tlsConfig and tls",

		"preTerminationChecks: [{endpoint: http://a, triggerEndpoint: http://a}]": "endpoint and triggerEndpoint",

		"preTerminationChecks: [{tls: {rootCA: A}, tlsConfig: {key: A}, " +
			"healthCheck: {tls: {}, tlsConfig: {key: A}}}]": "tlsConfig and tls, tlsConfig and tls",
	} {
		var s CycleNodeRequestSpec
		decodedSpec(t, &s, text)
		if got := strings.Join(s.BothNames(), ", "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
