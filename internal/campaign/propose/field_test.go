package propose

import (
	"encoding/json"
	"reflect"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/google/go-cmp/cmp"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// fieldsOf walks a schema of spec, given as YAML, with a spec.
func fieldsOf(t *testing.T, schema, spec string) (changes []Change, dropped []string, object map[string]any) {
	t.Helper()
	props := apiextensions.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(schema), &props); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte("spec: "+spec), &object); err != nil {
		t.Fatal(err)
	}
	fields, drop := Fields(&apiextensions.JSONSchemaProps{
		Properties: map[string]apiextensions.JSONSchemaProps{"spec": props},
	}, object)
	for _, f := range fields {
		changes = append(changes, f.Changes...)
	}
	for _, d := range drop {
		dropped = append(dropped, d.Field+": "+d.Reason)
	}
	return changes, dropped, object
}

func TestFields(t *testing.T) {
	for _, tt := range []struct {
		name, schema, spec string
		want, dropped      []string
	}{
		{
			name:   "replicas",
			schema: "{type: object, properties: {replicas: {type: integer, minimum: 0}}}", spec: "{replicas: 2}",
			want: []string{
				"up: spec.replicas from 2 to 3", "down: spec.replicas from 2 to 1",
				"to-zero: spec.replicas from 2 to 0",
			},
		},
		{
			name:    "one replica cannot be taken away",
			schema:  "{type: object, properties: {replicas: {type: integer, minimum: 1, maximum: 1}}}",
			spec:    "{replicas: 1}",
			dropped: []string{"spec.replicas: the minimum and the maximum allow no other value"},
		},
		{
			name:   "down to zero is once",
			schema: "{type: object, properties: {minReplicas: {type: integer}}}", spec: "{minReplicas: 1}",
			want: []string{"up: spec.minReplicas from 1 to 2", "to-zero: spec.minReplicas from 1 to 0"},
		},
		{
			name:   "integer at its maximum",
			schema: "{type: object, properties: {level: {type: integer, maximum: 9, multipleOf: 3}}}",
			spec:   "{level: 9}",
			want:   []string{"down: spec.level from 9 to 6"},
		},
		{
			name: "absent integers", spec: "{}",
			schema: "{type: object, properties: {ttl: {type: integer, minimum: 0}, port: {type: integer, " +
				"minimum: 1024}}}",
			want: []string{"set: spec.port is set to 1024", "set: spec.ttl is set to 1"},
		},
		{
			name: "quantities", spec: "{storage: 1Gi, old: 500m, plain: 3, share: 25%, most: 80%}",
			schema: "{type: object, properties: {storage: {x-kubernetes-int-or-string: true, pattern: 'numkMGTPE'}, " +
				"old: {type: string, pattern: '([numkMGTPE])'}, plain: {x-kubernetes-int-or-string: true, " +
				"pattern: numkMGTPE}, " +
				"share: {x-kubernetes-int-or-string: true}, most: {x-kubernetes-int-or-string: true}}}",
			want: []string{
				`grow: spec.old from "500m" to "1"`, "grow: spec.plain from 3 to 6",
				`grow: spec.share from "25%" to "50%"`,
				`grow: spec.storage from "1Gi" to "2Gi"`,
			},
			dropped: []string{`spec.most: "80%" is neither a quantity nor a percentage that can grow`},
		},
		{
			name: "amounts known by name, by value, and by their limits",
			spec: "{resources: {requests: {cpu: 200m, memory: 1.5Gi}, limits: {cpu: 300m, memory: 4Gi}}, " +
				"size: 512Mi, dataStorage: '10', timeout: 5m, old: {requests: {cpu: 1, memory: 32Mi}}}",
			schema: "{type: object, properties: {resources: {type: object, properties: {" +
				"requests: {type: object, additionalProperties: {pattern: numkMGTPE, " +
				"x-kubernetes-int-or-string: true}}, " +
				"limits: {type: object, additionalProperties: {pattern: numkMGTPE, " +
				"x-kubernetes-int-or-string: true}}}}, " +
				"size: {type: string}, dataStorage: {type: string}, timeout: {type: string}, " +
				"old: {type: object, properties: {requests: {type: object, additionalProperties: {type: string}}}}, " +
				"more: {type: object, properties: {limits: {type: object}, requests: {type: object}}}}}",
			want: []string{
				`grow: spec.dataStorage from "10" to "20"`,
				`set: spec.more is set to {"requests":{"cpu":"100m","memory":"64Mi"}}`,
				`grow: spec.old.requests.memory from "32Mi" to "64Mi"`,
				`grow: spec.resources.limits.cpu from "300m" to "600m"`,
				`grow: spec.resources.limits.memory from "4Gi" to "8Gi"`,
				`shrink: spec.resources.requests.cpu from "200m" to "100m"`,
				`grow: spec.resources.requests.memory from "1.5Gi" to "3Gi"`,
				`grow: spec.size from "512Mi" to "1Gi"`,
				"removed: spec.old is removed", "removed: spec.resources is removed",
			},
			dropped: []string{"spec.timeout: a text of unknown meaning: the schema has neither an enum nor an example"},
		},
		{
			name: "versions",
			spec: "{version: 8.0.35, image: 'db:1.27-alpine3.18', tag: '15', engineVersion: v1.30, apiVersion: v1, " +
				"chart: {version: '13'}, level: {version: '2'}, more: {version: '1.2'}}",
			schema: "{type: object, properties: {version: {type: string}, image: {type: string}, " +
				"tag: {type: string}, apiVersion: {type: string}, " +
				"engineVersion: {type: string, enum: [v1.28, v1.29, v1.30, v1.32, v1.31]}, " +
				"chart: {type: object, properties: {version: {type: string, " +
				"description: 'Supported are 12, 13 and 14.'}}}, " +
				"level: {type: object, properties: {version: {type: string, description: 'A number.'}}}, " +
				"more: {type: object, properties: {version: {type: string, pattern: '^1[.][0-2]$', default: '1.1'}}}}}",
			want: []string{
				`upgrade: spec.chart.version from "13" to "14"`,
				`upgrade: spec.engineVersion from "v1.30" to "v1.31"`,
				`other-tag: spec.image from "db:1.27-alpine3.18" to "db:1.28-alpine3.18"`,
				`downgrade: spec.more.version from "1.2" to "1.1"`,
				`upgrade: spec.version from "8.0.35" to "8.0.36"`,
				"removed: spec.chart is removed", "removed: spec.level is removed", "removed: spec.more is removed",
			},
			dropped: []string{
				"spec.apiVersion: a text of unknown meaning: the schema has neither an enum nor an example",
				`spec.level.version: a version of which no other one is known: neither the schema nor another sample ` +
					`has one, and "2" has no minor version that could be the next one`,
				`spec.tag: a version of which no other one is known: neither the schema nor another sample has one, ` +
					`and "15" has no minor version that could be the next one`,
			},
		},
		{
			name: "texts", spec: "{image: 'localhost:5000/db', mode: Fast, who: me, size: small, path: /a}",
			schema: "{type: object, properties: {image: {type: string}, mode: {type: string, " +
				"enum: [Fast, Slow, '', Never]}, " +
				"who: {type: string}, size: {type: string, example: large}, path: {type: string, default: /b}}}",
			want: []string{
				`other-tag: spec.image from "localhost:5000/db" to "localhost:5000/db:2"`,
				`to-slow: spec.mode from "Fast" to "Slow"`, `to-never: spec.mode from "Fast" to "Never"`,
				`to-b: spec.path from "/a" to "/b"`, `to-large: spec.size from "small" to "large"`,
			},
			dropped: []string{"spec.who: a text of unknown meaning: the schema has neither an enum nor an example"},
		},
		{
			name: "immutable", spec: "{a: 1, b: {c: true}}",
			schema: "{type: object, properties: {a: {type: integer, " +
				"x-kubernetes-validations: [{rule: self == oldSelf}]}, " +
				"b: {type: object, x-kubernetes-validations: [{rule: 'oldSelf==self'}], " +
				"properties: {c: {type: boolean}}}}}",
			dropped: []string{`spec.a: immutable: its rule is "self == oldSelf"`,
				`spec.b: immutable: its rule is "oldSelf==self"`},
		},
		{
			name: "blocks", spec: "{backup: {every: 1}, tls: {}}",
			schema: "{type: object, required: [tls], properties: {tls: {type: object, " +
				"properties: {active: {type: boolean}}}, " +
				"backup: {type: object, properties: {every: {type: integer}}}, " +
				"pause: {type: object, required: [how], properties: {how: {type: string, enum: [Now, Later]}}}, " +
				"login: {type: object, required: [user], properties: {user: {type: string}}}}}",
			want: []string{
				"on: spec.tls.active is set to true", "up: spec.backup.every from 1 to 2",
				"removed: spec.backup is removed",
				`set: spec.pause is set to {"how":"Now"}`,
			},
			dropped: []string{"spec.login: not set in the sample, and cannot be made from the schema: user: " +
				"a text or list of unknown meaning is required"},
		},
		{
			name: "lists and mappings",
			spec: "{parts: [{replicas: 1}, {replicas: 5}], names: [a], roles: {w: {replicas: 1}}, options: {a: b}}",
			schema: "{type: object, properties: {" +
				"parts: {type: array, items: {type: object, properties: {replicas: {type: integer, minimum: 1}}}}, " +
				"empty: {type: array, items: {type: object}}, " +
				"names: {type: array, items: {type: string}}, " +
				"roles: {type: object, additionalProperties: {type: object, " +
				"properties: {replicas: {type: integer, minimum: 1}}}}, " +
				"options: {type: object, additionalProperties: {type: string}}}}",
			want: []string{"up: spec.parts.0.replicas from 1 to 2", "up: spec.roles.w.replicas from 1 to 2"},
			dropped: []string{
				"spec.empty: the sample has no item of it",
				"spec.names: items of a list are changed only if they are objects",
				"spec.options: a mapping of texts of unknown meaning",
			},
		},
		{
			name: "pod template",
			spec: "{template: {spec: {containers: [{name: a, image: 'a:v1.9'}]}}}",
			schema: "{type: object, required: [template], properties: {template: {type: object, properties: {" +
				"metadata: {type: object, x-kubernetes-preserve-unknown-fields: true}, " +
				"spec: {type: object, properties: {containers: {type: array}, hostNetwork: {type: boolean}}}}}}}",
			want: []string{
				`other-tag: spec.template.spec.containers.0.image from "a:v1.9" to "a:v1.10"`,
				`added: spec.template.metadata.annotations.trommel.dev/changed is set to "yes"`,
				`added: spec.template.metadata.labels.trommel.dev/changed is set to "yes"`,
			},
			dropped: []string{"spec.template.spec: of a pod template only the first container's image is changed"},
		},
		{
			name: "the schema of a template's metadata keeps nothing",
			spec: "{template: {spec: {containers: [{name: a, image: 'a@sha256:1'}]}}}",
			schema: "{type: object, properties: {template: {type: object, properties: {metadata: {type: object}, " +
				"spec: {type: object, properties: {containers: {type: array}}}}}}}",
			dropped: []string{
				`spec.template.spec.containers.0.image: "a@sha256:1" has no tag that can be changed`,
				"spec.template.spec: of a pod template only the first container's image is changed",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes, dropped, object := fieldsOf(t, tt.schema, tt.spec)
			var got []string
			for _, c := range changes {
				got = append(got, c.Label+": "+c.String())
				checkUndo(t, object, c)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.dropped, dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		})
	}
}

// checkUndo applies the patch of a change, and then that of its undoing.
func checkUndo(t *testing.T, object map[string]any, c Change) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	there := apply(t, data, patchStep(object, c.Path, c.To).PatchType, patchStep(object, c.Path, c.To).Patch)
	if got := plain(lookup(there, c.Path)); !reflect.DeepEqual(got, c.To) {
		t.Errorf("%s: the field is then %v", c, got)
	}
	if data, err = json.Marshal(there); err != nil {
		t.Fatal(err)
	}
	undo := undoStep(object, c)
	if back := apply(t, data, undo.PatchType, undo.Patch); !reflect.DeepEqual(back, object) {
		t.Errorf("%s: undone it is %v, and was %v", c, back, object)
	}
}

func apply(t *testing.T, object []byte, typ string, patch any) map[string]any {
	t.Helper()
	data, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	if typ == "merge" {
		object, err = jsonpatch.MergePatch(object, data)
	} else {
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(data); err == nil {
			object, err = p.Apply(object)
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	var result map[string]any
	if err := json.Unmarshal(object, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// Other samples show which versions there are.
func TestVersionsOfOtherSamples(t *testing.T) {
	var object, other, third map[string]any
	for to, text := range map[*map[string]any]string{
		&third:  "spec: {version: '14', image: 'r.io/db:latest'}",
		&object: "spec: {version: '15', image: 'r.io/db:15', tool: {}}",
		&other:  "spec: {version: '16', image: 'r.io/db:17.1', tool: {image: 'tool:1'}, size: {version: '1'}}",
	} {
		if err := yaml.Unmarshal([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	props := apiextensions.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte("{type: object, properties: {spec: {type: object, properties: {"+
		"version: {type: string}, image: {type: string}, "+
		"tool: {type: object, properties: {image: {type: string}}}}}}}"), &props); err != nil {
		t.Fatal(err)
	}
	fields, _ := Fields(&props, object, third, other)
	var got []string
	for _, f := range fields {
		for _, c := range f.Changes {
			got = append(got, c.Label+": "+c.String())
		}
	}
	if diff := cmp.Diff([]string{
		`upgrade: spec.image from "r.io/db:15" to "r.io/db:17.1"`,
		`set: spec.tool.image is set to "tool:1"`,
		`upgrade: spec.version from "15" to "16"`,
		"removed: spec.tool is removed",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A volume grows, and does not shrink: there is no way back. What is computed with can be changed back.
func TestStorageOnlyGrows(t *testing.T) {
	const schema = "{type: object, properties: {storage: {type: object, properties: {size: {pattern: numkMGTPE, " +
		"x-kubernetes-int-or-string: true}}}, memory: {pattern: numkMGTPE, x-kubernetes-int-or-string: true}}}"
	changes, _, _ := fieldsOf(t, schema, "{storage: {size: 1Gi}, memory: 1Gi}")
	oneWay := map[string]bool{}
	for _, c := range changes {
		oneWay[c.String()] = c.OneWay
	}
	if diff := cmp.Diff(map[string]bool{
		`spec.storage.size from "1Gi" to "2Gi"`: true, `spec.memory from "1Gi" to "2Gi"`: false,
		"spec.storage is removed": false,
	}, oneWay); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPatchesOfLists(t *testing.T) {
	var object map[string]any
	if err := yaml.Unmarshal([]byte("spec: {parts: [{image: 'a:1', tls: {active: true}}]}"), &object); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Change{
		{Path: []string{"spec", "parts", "0", "image"}, From: "a:1", To: "a:2"},
		{Path: []string{"spec", "parts", "0", "tls"}, From: map[string]any{"active": true}},
		{Path: []string{"spec", "parts", "0", "metadata", "labels", "trommel.dev/changed"}, To: "yes"},
	} {
		checkUndo(t, object, c)
	}
}

func TestShortNames(t *testing.T) {
	all := [][]string{
		{"spec", "replicas"}, {"spec", "parts", "0", "replicas"}, {"spec", "parts", "0", "nodeSize"},
		{"spec", "template", "metadata", "labels", markKey}, {"spec", "template", "metadata", "annotations", markKey},
	}
	var got []string
	for _, path := range all {
		got = append(got, shortName(path, all))
	}
	want := []string{"replicas", "parts-replicas", "node-size", "labels", "annotations"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Regression: a workload had so long a name that its plans could not have theirs.
func TestNamesOfWorkloadsAreShort(t *testing.T) {
	for value, want := range map[string]string{
		"Retain": "to-retain",
		"quay.io/open-cluster-management/registration": "to-registration",
		"AVeryLongValueThatSomebodyHasThoughtOf":       "to-avery-long-value-that",
		"https://example.com/":                         "to-other",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":         "to-aaaaaaaaaaaaaaaaaaaaaaaa",
	} {
		if got := toLabel(value); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
	path := []string{"spec", "registrationConfiguration", "registrationDriver", "authenticationType"}
	other := []string{"spec", "workConfiguration", "registrationDriver", "authenticationType"}
	if got, want := shortName(path, [][]string{path, other}), "registration-configuration"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
