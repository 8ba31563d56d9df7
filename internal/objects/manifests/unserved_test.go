package manifests

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

// Regression: the Service behind an APIService of Hierarchical Namespaces selects no pod, so that no namespace is ever
// deleted. Nothing said why a workload that waited for this failed.
func TestAPIServiceThatNothingServes(t *testing.T) {
	for _, tt := range []struct{ app, want string }{
		{"list", ""},
		{"list-server", "/api.yaml:6: the API v1.list.example.com is missing, and no namespace can be deleted: the " +
			"selector of Service list selects no pod of the manifests"},
	} {
		dir := unpack(t, `
-- trommel.yaml --
manifests: [api.yaml]
-- api.yaml --
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.list.example.com}
spec:
  {group: list.example.com, version: v1, groupPriorityMinimum: 10, versionPriority: 10,
    service: {namespace: op, name: list}}
---
apiVersion: v1
kind: Service
metadata: {name: list, namespace: op}
spec: {selector: {app: list}, ports: [{port: 443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: list, namespace: op}
spec:
  selector: {matchLabels: {app: `+tt.app+`}}
  template: {metadata: {labels: {app: `+tt.app+`}}, spec: {containers: [{name: list, image: list}]}}
`)
		suite, err := plan.LoadSuite(dir + "/trommel.yaml")
		if err != nil {
			t.Fatal(err)
		}
		installed, err := LocatedOfSuite(suite, "v1.36.3")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if tt.want != "" {
			want = []string{dir + tt.want}
		}
		if !slices.Equal(installed.Warnings, want) {
			t.Errorf("%s: %s\nwant %s", tt.app, strings.Join(installed.Warnings, "\n"), tt.want)
		}
	}
}
