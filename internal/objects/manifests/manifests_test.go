package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/plan"
)

// unpack writes the files of a txtar archive into a new directory.
func unpack(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(text)).Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// names lists objects as kind namespace/name.
func names(list []*unstructured.Unstructured) []string {
	var all []string
	for _, u := range list {
		all = append(all, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
	}
	return all
}

const charts = `
-- foo/Chart.yaml --
apiVersion: v2
name: foo
version: 1.0.0
kubeVersion: ">=1.20.0-0"
dependencies:
- {name: sub, version: 1.0.0, condition: sub.enabled}
-- foo/values.yaml --
replicas: 1
image: {repository: op, tag: v1}
sub: {enabled: false}
-- foo/values.schema.json --
{"type": "object", "properties": {"replicas": {"type": "integer"}}}
-- foo/crds/foos.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Foo, plural: foos}, versions: [{name: v1, served: true}]}
-- foo/templates/_helpers.tpl --
{{- define "name" }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
-- foo/templates/NOTES.txt --
Thank you.
-- foo/templates/all.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ include "name" . }}}
spec:
  replicas: {{ .Values.replicas }}
  template: {spec: {containers: [{name: op, image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ include "name" . }}-{{ .Capabilities.KubeVersion.Minor }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Values.extra | default "none" }}, namespace: elsewhere}
---
apiVersion: example.com/v1
kind: Foo
metadata: {name: one}
-- foo/templates/hook.yaml --
apiVersion: batch/v1
kind: Job
metadata: {name: check, annotations: {helm.sh/hook: pre-install}}
-- foo/charts/sub/Chart.yaml --
apiVersion: v2
name: sub
version: 1.0.0
-- foo/charts/sub/templates/sub.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: sub}
-- more.yaml --
replicas: 2
extra: file
-- most.yaml --
replicas: 3
sub: {enabled: true}
-- broken/Chart.yaml --
apiVersion: v2
name: broken
version: 1.0.0
dependencies:
- {name: redis, version: 1.0.0, repository: https://example.com, condition: redis.enabled, alias: cache}
- {name: ui, version: 1.0.0, repository: https://example.com, condition: ui.enabled}
-- broken/values.yaml --
ui: {enabled: false}
-- broken/templates/all.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: all}
-- local/Chart.yaml --
apiVersion: v2
name: local
version: 1.0.0
dependencies:
- {name: foo, version: ">=1.0.0", repository: "file://../foo"}
-- published/Chart.yaml --
apiVersion: v2
name: published
version: 1.0.0
dependencies:
- {name: sub, version: 1.0.0, repository: "file://../somewhere"}
-- published/charts/sub/Chart.yaml --
apiVersion: v2
name: sub
version: 1.0.0
-- older/Chart.yaml --
apiVersion: v2
name: older
version: 1.0.0
dependencies:
- {name: foo, version: 0.9.0, repository: "file://../foo"}
-- circle/Chart.yaml --
apiVersion: v2
name: circle
version: 1.0.0
dependencies:
- {name: circle, version: 1.0.0, repository: "file://../circle/"}
-- text/Chart.yaml --
apiVersion: v2
name: text
version: 1.0.0
-- text/templates/bad.yaml --
metadata: {name: x}
-- new/Chart.yaml --
apiVersion: v2
name: new
version: 1.0.0
kubeVersion: ">=2.0.0"
`

func TestChart(t *testing.T) {
	suite := filepath.Join(unpack(t, charts), "trommel.yaml")
	for _, tt := range []struct {
		name     string
		manifest plan.Manifest
		want     []string
		image    string
		replicas int64
	}{
		{
			"as it is", plan.Manifest{Helm: "foo"},
			[]string{
				"CustomResourceDefinition /foos.example.com", "ConfigMap elsewhere/none", "ClusterRole /foo-foo-36",
				"Deployment default/foo-foo",
				"Foo /one",
			}, "op:v1", 1,
		},
		{
			"a chart beside it",
			plan.Manifest{Helm: "local", Values: map[string]any{
				"foo": map[string]any{"sub": map[string]any{"enabled": true}},
			}},
			[]string{
				"CustomResourceDefinition /foos.example.com", "ConfigMap default/sub", "ConfigMap elsewhere/none",
				"ClusterRole /local-foo-36", "Deployment default/local-foo", "Foo /one",
			}, "op:v1", 1,
		},
		{
			"values, files of values, release and namespace",
			plan.Manifest{
				Helm: "foo", Release: "bar", Namespace: "ns", ValuesFiles: []string{"more.yaml", "most.yaml"},
				Values: map[string]any{"image": map[string]any{"tag": "dev"}},
			},
			[]string{
				"CustomResourceDefinition /foos.example.com", "ConfigMap ns/sub", "ConfigMap elsewhere/file",
				"ClusterRole /bar-foo-36",
				"Deployment ns/bar-foo", "Foo /one",
			}, "op:dev", 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, notes, err := One(suite, tt.manifest, "v1.36.3")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, names(list)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			hook := "chart " + tt.manifest.Helm + ": 1 of its objects are hooks and are left out: Job check"
			if diff := cmp.Diff([]string{hook}, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			for _, u := range list {
				if u.GetKind() != "Deployment" {
					continue
				}
				replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
				containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
				if image := containers[0].(map[string]any)["image"]; image != tt.image || replicas != tt.replicas {
					t.Errorf("%d replicas of %s", replicas, image)
				}
			}
		})
	}
}

func TestChartDirs(t *testing.T) {
	dir := unpack(t, charts)
	for chart, want := range map[string][]string{
		"local": {"local", "foo"}, "circle": {"circle"}, "published": {"published"}, "none": {"none"},
	} {
		for i := range want {
			want[i] = filepath.Join(dir, want[i])
		}
		got, err := ChartDirs(filepath.Join(dir, chart))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", chart, diff)
		}
	}
}

func TestChartThatCannotBeRendered(t *testing.T) {
	suite := filepath.Join(unpack(t, charts), "trommel.yaml")
	for _, tt := range []struct {
		manifest plan.Manifest
		want     string
	}{
		{plan.Manifest{Path: "foo"}, "foo is a Helm chart: write `helm: foo`"},
		{plan.Manifest{Helm: "."}, "chart .: Chart.yaml file is missing"},
		{plan.Manifest{Helm: "broken"},
			"chart broken: its charts directory lacks redis, which Chart.yaml requires; run `helm dependency " +
				"build broken`"},
		{plan.Manifest{Helm: "older"},
			"chart older: it depends on chart foo, version 0.9.0; in file://../foo is foo, version 1.0.0"},
		{plan.Manifest{Helm: "circle"}, "chart circle: chart circle depends on itself (file://../circle/)"},
		{plan.Manifest{Helm: "text"}, "text/templates/bad.yaml (rendered):1: the object has no apiVersion"},
		{plan.Manifest{Helm: "new"}, "chart new requires Kubernetes >=2.0.0; the cluster is v1.36.3"},
		{plan.Manifest{Helm: "foo", Values: map[string]any{"replicas": "x"}},
			"chart foo: values don't meet the specifications of the schema"},
	} {
		_, _, err := One(suite, tt.manifest, "v1.36.3")
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.manifest, err, tt.want)
		}
	}
}

// A chart needs none of the charts that its values switch off.
func TestChartThatLacksWhatIsSwitchedOff(t *testing.T) {
	suite := filepath.Join(unpack(t, charts), "trommel.yaml")
	list, _, err := One(suite, plan.Manifest{Helm: "broken", Values: map[string]any{
		"redis": map[string]any{"enabled": false},
	}}, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ConfigMap default/all"}, names(list)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestNamespaceOfManifests(t *testing.T) {
	dir := unpack(t, `
-- base/kustomization.yaml --
resources: [all.yaml]
-- base/all.yaml --
apiVersion: v1
kind: ServiceAccount
metadata: {name: op}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: op}
subjects:
- {kind: ServiceAccount, name: op}
- {kind: ServiceAccount, name: op, namespace: other}
- {kind: Group, name: all}
---
apiVersion: example.com/v1
kind: Unknown
metadata: {name: sample}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
`)
	list, _, err := One(filepath.Join(dir, "trommel.yaml"), plan.Manifest{Path: "base", Namespace: "op-system"},
		"1.36")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ServiceAccount op-system/op", "ConfigMap other/other", "ClusterRoleBinding /op",
		"Unknown op-system/sample", "Namespace /other"}
	if diff := cmp.Diff(want, names(list)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	var bound []any
	for _, subject := range mappings(list[2].Object["subjects"]) {
		bound = append(bound, subject["namespace"])
	}
	if diff := cmp.Diff([]any{"op-system", "other", nil}, bound); diff != "" {
		t.Errorf("namespaces of subjects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Namespace /op-system"}, names(MissingNamespaces(list))); diff != "" {
		t.Errorf("missing namespaces (-want +got):\n%s", diff)
	}
}

// Kustomizations from 2018 list their patches as strings: file names or inline text.
func TestKustomizationWithPatchesAsText(t *testing.T) {
	dir := unpack(t, `
-- kustomization.yaml --
namespace: op-system
bases: [base]
patches:
- patch.yaml # of the manager
- |-
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: c, namespace: system}
  data: {a: inline}
- path: json.yaml
  target: {kind: ConfigMap}
-- patch.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: system}
data: {b: file}
-- json.yaml --
- {op: add, path: /data/c, value: json}
-- base/kustomization.yaml --
resources: [c.yaml]
-- base/c.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: system}
`)
	list, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, _, _ := unstructured.NestedMap(list[0].Object, "data")
	if diff := cmp.Diff(map[string]any{"a": "inline", "b": "file", "c": "json"}, data); diff != "" ||
		list[0].GetNamespace() != "op-system" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}
