package crd

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// The rules, types, defaults and lists of a definition are checked as an API server checks them.
func TestValidate(t *testing.T) {
	data, err := os.ReadFile("../../../nodes/config/crd/nodes.trommel.dev_simulatednodegroups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		spec string
		want []string // path: message (its beginning)
	}{
		{"{desiredCapacity: 3}", nil},
		{"{}", []string{": missing property 'desiredCapacity'"}},
		{"{desiredCapacity: 101}", []string{": desiredCapacity must be from minSize to maxSize"}},
		{"{desiredCapacity: 3, template: {address: here}}",
			[]string{"template.address: address must be an IP address"}},
		{"{desiredCapacity: 3, template: {address: 'fe80::1%eth0'}}",
			[]string{"template.address: address must be an IP address"}},
		{"{desiredCapacity: 3, template: {address: '2001:db8::1'}}", nil},
		{"{desiredCapacity: 1, faults: [{name: a, type: Hangs, calls: [Attach]}]}",
			[]string{"faults.0: only Detach, Remove and Terminate can hang"}},
		{"{desiredCapacity: 1, faults: [{name: a, type: Error, calls: [Detach, Detach]}]}",
			[]string{"faults.0.calls: items at 0 and 1 are equal"}},
		{"{desiredCapacity: 1, size: 2}", []string{": additional properties 'size'"}},
	} {
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(test.spec), &spec); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range d.Validate(spec) {
			got = append(got, strings.Join(m.Path, ".")+": "+m.Message)
		}
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", test.spec, got, test.want)
		}
	}
}

func TestNewRefusesSeveralVersions(t *testing.T) {
	if _, err := New([]byte("spec: {versions: [{}, {}]}")); err == nil || !strings.Contains(err.Error(), "2 versions") {
		t.Error(err)
	}
}
