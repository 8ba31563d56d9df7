package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

const definitions = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Database, plural: databases, singular: database}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, required: [phase], properties: {phase: {type: string}}}
          spec:
            type: object
            required: [replicas, storage]
            properties:
              replicas: {type: integer, minimum: 1, default: 1}
              storage: {type: string, pattern: "^[0-9]+Gi$"}
              mode: {type: string, enum: [fast, safe]}
              port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              users:
                type: array
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, role: {type: string, default: reader}}
              extra: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v0
    served: false
    storage: false
    schema: {openAPIV3Schema: {type: object}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: anythings.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Anything, plural: anythings, singular: anything}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// definitionOfQueue requires the fields that every object has, as zalando/postgres-operator's does.
const definitionOfQueue = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Queue, plural: queues, singular: queue}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [apiVersion, kind, metadata, spec]
        properties: {spec: {type: object}}
`

const pod = "spec: {containers: [{name: a, image: b}]}"

func TestChecker(t *testing.T) {
	list, err := objects.Decode([]byte(definitions+definitionOfQueue), "definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	checker, err := NewChecker(list, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	const db = "apiVersion: example.com/v1\nkind: Database\nmetadata: {name: db, namespace: ns}\nspec: "
	for _, tt := range []struct {
		name   string
		object string
		want   []string
	}{
		{"right", db + "{storage: 1Gi, mode: safe, port: http, users: [{name: a}], extra: {a: {b: 1}}}", nil},
		{"a number for int-or-string", db + "{storage: 1Gi, port: 80}", nil},
		{"required are fields that every object has",
			"{apiVersion: example.com/v1, kind: Queue, metadata: {name: q}, spec: {}}", nil},
		{"required are fields that every object has, and another one",
			"{apiVersion: example.com/v1, kind: Queue, metadata: {name: q}}", []string{"Queue q: .spec is required"}},
		{"subjects of a binding",
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, " +
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}, " +
				"subjects: [{kind: ServiceAccount, name: a, namespace: ns}, {kind: User, name: b}, " +
				"{kind: ServiceAccount, name: c}]}",
			[]string{"ClusterRoleBinding b: subjects[2].namespace is required for a ServiceAccount; in manifests " +
				"without namespaces, `namespace:` of the suite's item sets it"}},
		{"subjects of a binding in a namespace",
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: b, namespace: ns}, " +
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, " +
				"subjects: [{kind: ServiceAccount, name: a}]}", nil},
		{"a status is the controller's", db + "{storage: 1Gi}\nstatus: {}", nil},
		{
			"several mistakes", db + "{replicas: 0, mode: slow, users: [{role: x}], replcas: 1, extra: {}}",
			[]string{
				"Database ns/db: spec.mode should be one of [fast safe]",
				"Database ns/db: spec.replicas should be greater than or equal to 1",
				"Database ns/db: spec.storage is required",
				"Database ns/db: spec.users[0].name is required",
				`Database ns/db: unknown field "spec.replcas"`,
			},
		},
		{"another type", db + "{storage: 1}",
			[]string{`Database ns/db: spec.storage must be of type string: "integer"`}},
		{"anything goes", "{apiVersion: example.com/v1, kind: Anything, metadata: {name: a}, spec: {a: 1}}", nil},
		{
			"a repeated group",
			"{apiVersion: example.com.example.com/v1, kind: Database, metadata: {name: db}}",
			[]string{`Database db: the cluster serves no type "example.com.example.com/v1 Database" (it serves a ` +
				`Database in example.com/v1)`},
		},
		{
			"a version that is not served",
			"{apiVersion: example.com/v0, kind: Database, metadata: {generateName: db}}",
			[]string{`Database db*: the cluster serves no type "example.com/v0 Database" (it serves Database in ` +
				`example.com/v1)`},
		},
		{
			"an unknown kind",
			"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: a}}",
			[]string{`ServiceMonitor a: the cluster serves no type "monitoring.coreos.com/v1 ServiceMonitor"; is ` +
				`its CustomResourceDefinition among the suite's manifests?`},
		},
		{
			"a field that Kubernetes does not have",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replica: 1, template: {spec: " +
				"{containers: [{nam: x, name: x, image: x}]}}, selector: null}}",
			[]string{`Deployment d: unknown field "spec.replica"`,
				`Deployment d: unknown field "spec.template.spec.containers[0].nam"`,
				"Deployment d: spec.selector is required"},
		},
		{"a value of another type", `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: 1}}`,
			[]string{"ConfigMap c: data.a must be text: quote 1"}},
		{"a label of another type", `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {a: 1}}}`,
			[]string{"ConfigMap c: cannot convert int64 to string"}},
		{"a Secret in plain text", "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: x}, " +
			`data: {a: "plain text", b: aGVsbG8=, c: "", d: null}}`,
			[]string{"Secret s: data.a is not base64: illegal base64 data at input byte 5; plain text goes into " +
				"stringData"}},
		{"a Secret in lines", `{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: "aGVs\nbG8=\n"}}`, nil},
		{"a selector that does not match", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {" +
			"selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, " + pod + "}}}",
			[]string{"Deployment d: spec.selector (app=a) does not match spec.template.metadata.labels (app=b)"}},
		{"a selector by expression", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: d}, spec: {selector: " +
			"{matchExpressions: [{key: app, operator: In, values: [a, b]}]}, template: {metadata: {labels: {app: b, " +
			"c: d}}, " + pod + "}}}", nil},
		{"an empty selector", "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {selector: {}, " +
			"template: {metadata: {labels: {app: b}}, " + pod + "}}}", []string{"DaemonSet d: spec.selector is empty"}},
		{"the labels select by default", "{apiVersion: v1, kind: ReplicationController, metadata: {name: d}, spec: {" +
			"template: {metadata: {labels: {app: b}}, " + pod + "}}}", nil},
		{"required fields", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {" +
			"containers: [{image: i}, {name: b, ports: [{name: p}]}], volumes: [{emptyDir: {}}]}}}}",
			[]string{
				"Deployment d: spec.selector is required",
				"Deployment d: spec.template.spec.volumes[0].name is required",
				"Deployment d: spec.template.spec.containers[0].name is required",
				"Deployment d: spec.template.spec.containers[1].image is required",
				"Deployment d: spec.template.spec.containers[1].ports[0].containerPort is required",
			}},
		{"no template", "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {}}",
			[]string{"Job j: spec.template.spec.containers is required"}},
		{"fields that may be absent", "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}}",
			nil},
		{"a rule without verbs", "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, " +
			"rules: [{apiGroups: ['']}]}", []string{"ClusterRole r: rules[0].verbs is required"}},
		{"a claim", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {resources: {}}}",
			[]string{"PersistentVolumeClaim c: spec.accessModes is required",
				"PersistentVolumeClaim c: spec.resources.requests.storage is required"}},
		{"Certificates are handled without a definition",
			`{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: c}, spec: {x: 1}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, err := objects.Decode([]byte(tt.object), "object.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := checker.Check(list[0]); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
		})
	}
}

// checkInstalled reads the manifests of a suite, and checks them and the objects of its workloads.
func checkInstalled(t *testing.T, suite *plan.Suite) (notes []string, err error) {
	t.Helper()
	installed, err := LocatedOfSuite(suite, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	more, err := CheckInstalled(suite, installed.Objects, "v1.36.3")
	return append(installed.Notes, more...), err
}

// Regression: an unknown field in a chart's or an author's manifests was an error, at the first line of the file. In
// the suite's own workloads it still is one.
func TestUnknownFieldsOfManifests(t *testing.T) {
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: op}
spec:
  selector: {matchLabels: {app: op}}
  template:
    metadata: {labels: {app: op}}
    spec:
      containers:
      - {name: a, image: a}
      - name: b
        image: b
        serviceAccount: op
      nodeSelektor: {a.b/c: d}
`
	dir := unpack(t, `
-- trommel.yaml --
manifests: [op.yaml, list.yaml, built]
workloads:
  a:
  - apply: pod.yaml
-- pod.yaml --
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: a, image: a}]
  node: a
-- op.yaml --
# A comment.
---
`+deployment+`-- list.yaml --
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: first}}
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: second
  spec.data: {}
-- built/kustomization.yaml --
namePrefix: my-
resources: [op.yaml]
-- built/op.yaml --
`+deployment)
	suite, err := plan.LoadSuite(dir + "/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := LocatedOfSuite(suite, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	built := "built (built by kustomize): Deployment my-op: unknown field "
	want := []string{
		`op.yaml:15: Deployment op: unknown field "spec.template.spec.containers[1].serviceAccount"; it is left out`,
		`op.yaml:16: Deployment op: unknown field "spec.template.spec.nodeSelektor"; it is left out`,
		`list.yaml:9: ConfigMap second: unknown field "spec.data"; it is left out`,
		built + `"spec.template.spec.containers[1].serviceAccount"; it is left out`,
		built + `"spec.template.spec.nodeSelektor"; it is left out`,
	}
	got := strings.Split(strings.ReplaceAll(strings.Join(installed.Warnings, "\n"), dir+"/", ""), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	checker, err := NewChecker(nil, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range installed.Objects {
		if err := checker.Check(l.Unstructured); err != nil {
			t.Errorf("the field is still there: %v", err)
		}
	}
	_, err = CheckInstalled(suite, installed.Objects, "v1.36.3")
	if want := dir + `/pod.yaml:6: Pod p: unknown field "spec.node"`; err == nil || err.Error() != want {
		t.Errorf("workload: %v, want %s", err, want)
	}
	if newer, err := LocatedOfSuite(suite, "v1.99.0"); err != nil || newer.Warnings != nil {
		t.Errorf("a newer cluster may know the fields: %v, %q", err, newer.Warnings)
	}
}

// Regression: both were applied concurrently.
func TestObjectsInstalledTwice(t *testing.T) {
	dir := unpack(t, `
-- trommel.yaml --
manifests: [a, {path: b.yaml, namespace: op}, c]
-- a/1.yaml --
apiVersion: v1
kind: Namespace
metadata: {name: op}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: op}
data: {a: b}
-- a/2.yaml --
apiVersion: v1
kind: Namespace
metadata: {name: op}
-- b.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: c}
---
apiVersion: v1
kind: Secret
metadata: {name: settings}
---
apiVersion: v1
kind: Pod
metadata: {generateName: a-}
spec: {containers: [{name: a, image: b}]}
-- c/kustomization.yaml --
resources: [a.yaml]
-- c/a.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: v1
kind: Namespace
metadata: {name: op, labels: {a: b}}
`)
	suite, err := plan.LoadSuite(dir + "/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = checkInstalled(t, suite)
	if err == nil {
		t.Fatal("no error")
	}
	const hint = ", with other contents: leave one of them out of the suite's manifests"
	want := "b.yaml:1: ConfigMap op/settings is also in a/1.yaml:5" + hint + "\n" +
		"c (built by kustomize): Namespace op is also in a/1.yaml:1" + hint
	if got := strings.ReplaceAll(err.Error(), dir+"/", ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for i := range suite.Manifests {
		suite.Manifests[i].Cluster = fmt.Sprint(i) // in each cluster it is there once
	}
	if _, err = checkInstalled(t, suite); err != nil {
		t.Error(err)
	}
}

func TestCheckSuite(t *testing.T) {
	dir := unpack(t, `
-- trommel.yaml --
manifests: [crds, {path: base, namespace: op}]
workloads:
  a:
  - apply: {apiVersion: example.com/v1, kind: Database, metadata: {name: a}, spec: {storage: 1Gi}}
  - apply:
    - {apiVersion: example.com.example.com/v1, kind: Database, metadata: {name: b}}
    - {apiVersion: v1, kind: Pod, metadata: {name: p}, specs: {}}
  - apply: samples/db.yaml
-- samples/db.yaml --
apiVersion: example.com/v1
kind: Database
metadata: {name: c}
spec: {}
-- base/sa.yaml --
apiVersion: v1
kind: ServiceAccount
metadata: {name: op}
---
# A comment.
apiVersion: v1
kind: Secret
metadata: {name: plain}
data: {a: plain text}
-- crds/wrong.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wrong}
spec: {group: example.com, names: {kind: Wrong, plural: wrongs}, versions: []}
-- crds/crds.yaml --
`+strings.TrimSpace(definitions)+"\n")
	suite, err := plan.LoadSuite(dir + "/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := checkInstalled(t, suite)
	if diff := cmp.Diff([]string{"no manifest creates namespace op, which others use; the run creates it"},
		notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	want := []string{
		`trommel.yaml: manifests: CustomResourceDefinition wrong: its name must be "wrongs.example.com" ` +
			`(spec.names.plural.spec.group)`,
		`base/sa.yaml:9: Secret op/plain: data.a is not base64: illegal base64 data at input byte 5; plain text goes ` +
			`into stringData`,
		`trommel.yaml: workload "a", step 2: Database b: the cluster serves no type "example.com.example.com/v1 ` +
			`Database" (it serves a Database in example.com/v1)`,
		`trommel.yaml: workload "a", step 2: Pod p: unknown field "specs"`,
		`trommel.yaml: workload "a", step 2: Pod p: spec.containers is required`,
		`samples/db.yaml:4: Database c: spec.storage is required`,
	}
	var got []string
	if err != nil {
		got = strings.Split(strings.ReplaceAll(err.Error(), dir+"/", ""), "\n")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

// What a webhook fills in, and what a controller defines, is not known before the run.
func TestCheckSuiteWithoutCertainty(t *testing.T) {
	const webhook = "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: " +
		"{name: w}, webhooks: [{name: w.example.com, clientConfig: {url: 'https://a'}, sideEffects: None, " +
		"admissionReviewVersions: [v1], rules: [{apiGroups: [example.com], apiVersions: [v1], resources: " +
		"[databases], operations: [CREATE]}]}]}"
	dir := unpack(t, `
-- trommel.yaml --
controllers: [{name: op, build: {dir: .}}]
manifests: [crds.yaml]
workloads:
  a:
  - apply: {apiVersion: example.com/v1, kind: Database, metadata: {name: a}, spec: {mode: slow, storag: 1}}
  - apply: {apiVersion: example.com/v1, kind: Cache, metadata: {name: a}}
-- crds.yaml --
`+strings.TrimSpace(definitions)+"\n---\n"+webhook+"\n")
	suite, err := plan.LoadSuite(dir + "/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := checkInstalled(t, suite)
	step := func(n int) string { return fmt.Sprintf("%s: workload \"a\", step %d: ", suite.File, n) }
	want := []string{
		step(1) + "Database a: spec.mode should be one of [fast safe]; a mutating webhook may change that",
		step(1) + "Database a: spec.storage is required; a mutating webhook may change that",
		step(2) + `Cache a: the cluster serves no type "example.com/v1 Cache"; is its CustomResourceDefinition among ` +
			"the suite's manifests?; the controller must define this type before the object is applied",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if want := step(1) + `Database a: unknown field "spec.storag"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
