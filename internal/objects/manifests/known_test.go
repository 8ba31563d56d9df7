package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
)

func TestKnown(t *testing.T) {
	const withRole = "controllers: [{name: op, build: {dir: .}, clusterRole: op}]\n"
	const role = "\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: op}, rules: [{"
	notServed := func(what, hint string) string { return `the cluster serves no type "` + what + `"` + hint }
	const dubious = " (this may be right: "
	for _, tt := range []struct {
		name   string
		suite  string
		more   string // objects of the manifests beside the definitions
		key    string // the suite's history
		err    string
		note   string
		reason string
	}{
		{name: "defined", suite: withRole, key: "database/default/db"},
		{name: "with its group", suite: withRole, key: "database.example.com/*/*"},
		{name: "Kubernetes' own", suite: withRole, key: "podtemplate/default/a"},
		{name: "Kubernetes' own, which client-go does not know", suite: withRole, key: "apiservice//a"},
		{name: "definitions themselves", suite: withRole, key: "customresourcedefinition//a"},
		{name: "cert-manager's", suite: withRole, key: "certificate.cert-manager.io/default/a"},
		{name: "Trommel's disruptions", suite: withRole, key: "disruption/default/a"},
		{name: "Trommel's node cycling", suite: withRole, key: "cyclenoderequest.nodes.trommel.dev/default/a"},
		{name: "a namespace may be left out", suite: withRole, key: "database//db", reason: "it means all of them"},
		{name: "plural", suite: withRole, key: "databases/default/db",
			err: "type databases: do you mean database? (its kind is Database; write database/default/db)"},
		{name: "plural with the group", suite: withRole, key: "databases.example.com/default/db",
			err: "type databases: do you mean database? (its kind is Database; write database.example.com/default/db)"},
		{name: "misspelled", suite: withRole, key: "databsae/default/db",
			err: notServed("databsae", `; did you mean "database"?`)},
		{name: "another group", suite: withRole, key: "database.example.org/default/db",
			err: notServed("database.example.org", `; did you mean "database.example.com"?`)},
		{name: "nothing like it", suite: withRole, key: "lion/default/db",
			err: notServed("lion", "; is its CustomResourceDefinition among the suite's manifests?")},
		{name: "a plural of cert-manager's", suite: withRole, key: "certificates/default/a",
			err: notServed("certificates", `; did you mean "certificate" or "certificatesigningrequest"?`)},

		{name: "a plural is wrong even if there may be more", suite: "controllers: [{name: op, build: {dir: .}}]\n",
			key: "databases/default/db",
			err: "type databases: do you mean database? (its kind is Database; write database/default/db)"},
		{name: "a generated Deployment may do everything", suite: "controllers: [{name: op, build: {dir: .}}]\n",
			key: "lion/default/a", note: "controller op may do everything, and so define types)"},
		{name: "kube-controller-manager does not define types",
			suite: "controllers: [{name: op, build: {controlPlane: kube-controller-manager}}]\n",
			key:   "databsae/default/a", err: notServed("databsae", `; did you mean "database"?`)},
		{name: "a role to define types", suite: withRole, more: role +
			"apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, create]}]}",
			key: "lion/default/a", note: "ClusterRole op allows to define types)"},
		{name: "a role for everything", suite: withRole, more: role +
			"apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}",
			key: "lion/default/a", note: "ClusterRole op allows to define types)"},
		{name: "a role to give oneself roles", suite: withRole, more: role +
			"apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [escalate]}]}",
			key: "lion/default/a", note: "ClusterRole op allows to define types)"},
		{name: "a role to read definitions", suite: withRole, more: role +
			"apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch]}]}",
			key: "databsae/default/a", err: notServed("databsae", `; did you mean "database"?`)},
		{name: "a binding to cluster-admin", suite: withRole, more: "\n---\n{apiVersion: " +
			"rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b}, roleRef: {apiGroup: " +
			"rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}",
			key: "lion/default/a", note: "ClusterRoleBinding b allows to define types)"},
		{name: "an aggregated API server's group", suite: withRole, more: apiServiceOfZoo,
			key: "lion.zoo.io/default/a"},
		{name: "what an aggregated API server may have", suite: withRole, more: apiServiceOfZoo,
			key: "lion/default/a", note: "the API server behind APIService v1.zoo.io has types of its own)"},
		{name: "a workload's command", suite: withRole + "workloads: {w: {command: [make, crds]}}\n",
			key: "lion/default/a", note: `the command of workload "w" may define types)`},
		{name: "a step's command", suite: withRole + "workloads: {w: [{exec: [make, crds]}]}\n",
			key: "lion/default/a", note: `a command of workload "w" may define types)`},
		{name: "a step's definition", suite: withRole + "workloads: {w: [{apply: {apiVersion: " +
			"apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: lions.zoo.io}, spec: {group: " +
			"zoo.io, scope: Namespaced, names: {kind: Lion, plural: lions}, versions: [{name: v1, served: true, " +
			"storage: true}]}}}]}\n", key: "lion/default/a"},
		{name: "a newer Kubernetes", suite: withRole + `cluster: {kubernetesVersion: "1.37"}` + "\n",
			key: "lion/default/a", note: "Kubernetes 1.37 may have further types)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := unpack(t, "\n-- trommel.yaml --\n"+tt.suite+"history: ["+tt.key+"]\nmanifests: [crds.yaml]\n"+
				"-- crds.yaml --\n"+strings.TrimSpace(definitions)+tt.more+"\n")
			suite, err := plan.LoadSuite(dir + "/trommel.yaml")
			if err != nil {
				t.Fatal(err)
			}
			kubernetes := suite.Cluster.KubernetesVersion
			if kubernetes == "" {
				kubernetes = "v1.36.3"
			}
			installed, _, err := OfSuite(suite, kubernetes)
			if err != nil {
				t.Fatal(err)
			}
			notes, err := NewKnown(suite, installed, kubernetes).Check(suite.CheckResources)
			var got string
			if err != nil {
				_, got, _ = strings.Cut(err.Error(), ": ")
			}
			if diff := cmp.Diff(tt.err, got); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s", diff)
			}
			if tt.note == "" && len(notes) > 0 || tt.note != "" && (len(notes) != 1 ||
				!strings.HasSuffix(notes[0], dubious+tt.note)) {
				t.Errorf("notes %q, want one that ends with %q", notes, tt.note)
			}
		})
	}
}

const apiServiceOfZoo = "\n---\n{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: " +
	"{name: v1.zoo.io}, spec: {group: zoo.io, version: v1, groupPriorityMinimum: 10, versionPriority: 10, " +
	"service: {name: zoo, namespace: default}}}"
