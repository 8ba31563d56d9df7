package manager

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// specFields lists the fields of a spec by their JSON names.
func specFields(spec reflect.Type) []string {
	var names []string
	for i := range spec.NumField() {
		field := spec.Field(i)
		if field.Anonymous {
			names = append(names, specFields(field.Type)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// No field of a spec but count can be set, changed or removed afterwards.
func TestOnlyCountCanBeChanged(t *testing.T) {
	f := newFixture(t)
	const selector, kind = `"selector":{"app":"nobody"}`, `"apiFault":{"hang":true}`
	create := func(name string, fields ...string) *chaos.Disruption {
		t.Helper()
		d := &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
		spec := "{" + strings.Join(fields, ",") + "}"
		if err := json.Unmarshal([]byte(spec), &d.Spec); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		if err := f.Create(t.Context(), d); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		return d
	}
	patch := func(d *chaos.Disruption, field, value string) error {
		change := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{%q:%s}}`, field, value))
		return f.Patch(t.Context(), d.DeepCopy(), change, client.DryRunAll)
	}
	base := create("base", selector, kind)
	tests := []struct{ field, value, other, beside string }{
		{"level", `"node"`, `"pod"`, selector + `,"cpuPressure":{"load":10}`},
		{"selector", `{"app":"a"}`, `{"app":"b"}`, kind},
		{"advancedSelector", `[{"key":"a","operator":"Exists"}]`, `[{"key":"b","operator":"Exists"}]`, kind},
		{"filter", `{"annotations":{"a":"1"}}`, `{"annotations":{"a":"2"}}`, ""},
		{"containers", `["a"]`, `["a","b"]`, ""},
		{"seed", `1`, `2`, ""},
		{"staticTargeting", `true`, `false`, ""},
		{"allowDisruptedTargets", `true`, `false`, ""},
		{"duration", `"1m"`, `"2m"`, ""},
		{"pulse", `{"activeDuration":"1s","dormantDuration":"1s"}`, `{"dormantDuration":"2s"}`, ""},
		{"triggers", `{"inject":{"offset":"1s"}}`, `{"inject":{"offset":"2s"}}`, ""},
		{"dryRun", `true`, `false`, ""},
		{"maxRuns", `1`, `2`, ""},
		{"remoteCluster", `{"cluster":"a","namespace":"a"}`, `{"cluster":"b"}`, ""},
		{"network", `{"drop":10}`, `{"drop":20}`, selector},
		{"apiFault", `{"status":500}`, `{"status":501}`, selector},
		{"dns", `{"records":[{"name":"a","fault":"drop"}]}`, `{"records":[]}`, selector},
		{"cpuPressure", `{"load":10}`, `{"load":20}`, selector},
		{"memoryPressure", `{"target":10}`, `{"target":20}`, selector},
		{"diskPressure", `{"path":"/a","readBytesPerSecond":1}`, `{"path":"/b"}`, selector},
		{"diskFailure", `{"paths":["/a"]}`, `{"paths":["/b"]}`, selector},
		{"containerFailure", `{"signal":"KILL"}`, `{"signal":"TERM"}`, selector},
		{"nodeFailure", `{"mode":"gone"}`, `{"mode":"notReady"}`, selector},
		{"podReplacement", `{"gracePeriod":"1s"}`, `{"gracePeriod":"2s"}`, selector},
		{"grpc", `{"port":1,"endpoints":[{"method":"/a.B/C","error":"INTERNAL"}]}`, `{"port":2}`, selector},
	}
	var tested []string
	for i, tt := range tests {
		tested = append(tested, tt.field)
		if tt.beside == "" {
			tt.beside = selector + "," + kind
		}
		with := create(fmt.Sprint("with-", i), fmt.Sprintf("%q:%s", tt.field, tt.value), tt.beside)
		// The spec goes to another cluster only once.
		if err := patch(with, "count", "1"); (err != nil) != (tt.field == "remoteCluster") {
			t.Errorf("count beside %s: %v", tt.field, err)
		}
		for what, err := range map[string]error{
			"set": patch(base, tt.field, tt.value), "changed": patch(with, tt.field, tt.other),
			"removed": patch(with, tt.field, "null"),
		} {
			want := tt.field + " is immutable: only count can be changed; create another disruption"
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s was %s: %v", tt.field, what, err)
			}
		}
	}
	for _, field := range specFields(reflect.TypeFor[chaos.DisruptionSpec]()) {
		if field != "count" && !slices.Contains(tested, field) {
			t.Errorf("%s is not tested", field)
		}
	}
}
