package plan

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// registerClusterKind registers a type of cluster for the time of a test.
func registerClusterKind(t *testing.T, k ClusterKind) {
	RegisterClusterKind(k)
	t.Cleanup(func() {
		clusterKinds = clusterKinds[:len(clusterKinds)-1]
		setClusterWords()
	})
}

func TestTypeOfClusterThatIsNotKnown(t *testing.T) {
	_, err := ParseSuite([]byte("cluster: {type: cloud}\n"), "trommel.yaml")
	if err == nil || !strings.Contains(err.Error(), `trommel.yaml:1:17: unknown cluster type "cloud"`) {
		t.Errorf("got %v", err)
	}
}

// A suite and its plans cannot ask for something that the type of cluster lacks.
func TestClusterThatLacksSomething(t *testing.T) {
	registerClusterKind(t, ClusterKind{Type: "plain"})
	registerClusterKind(t, ClusterKind{Type: "observed", Can: []Capability{ObserveAPIServers, RunControllers}})

	const suite = `cluster:
  type: TYPE
  apiServers: 2
controllers:
- {name: db, binary: /bin/true}
workloads: {nothing: [{sleep: 1s}]}
variants:
  gated: {cluster: {featureGates: {Some: true}}}
`
	_, err := ParseSuite([]byte(strings.ReplaceAll(suite, "TYPE", "plain")), "trommel.yaml")
	wantErrors(t, err,
		`trommel.yaml:3:15: apiServers is not for a cluster of type "plain" (it is for: embedded, kind)`,
		`trommel.yaml:5:3: controller "db" needs a cluster that can run controllers under test; `+
			`one of type "plain" cannot`,
		`trommel.yaml:8:20: a variant's cluster needs a cluster that can configure its control plane; `+
			`one of type "plain" cannot`)

	dir := t.TempDir()
	file := filepath.Join(dir, SuiteFile)
	text := strings.ReplaceAll(suite, "TYPE", "observed")
	text = strings.ReplaceAll(text, "  apiServers: 2\n", "")
	text, _, _ = strings.Cut(text, "variants:")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	const p = `testName: t
workload: nothing
actions:
- actionType: killAPIServer
  actionTarget: apiserver-1
  trigger:
    definitions:
    - triggerName: seen
      condition: {triggerType: onObjectCreation, resourceKey: pod/default/a}
      observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-1}
- {actionType: pauseAPIServer, actionTarget: apiserver-1,
   trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}}
- {actionType: killController, trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}}
`
	planFile := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(planFile, []byte(p), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = LoadWith(planFile, s)
	wantErrors(t, err,
		planFile+`:4:15: killAPIServer needs a cluster that can kill and start API servers; `+
			`one of type "observed" cannot`)

	s.Cluster.Type = "plain"
	_, err = LoadWith(planFile, s)
	wantErrors(t, err,
		planFile+`:4:15: killAPIServer needs a cluster that can kill and start API servers; one of type "plain" cannot`,
		planFile+`:10:34: afterAPIServerRecv needs a cluster that can observe and pause API servers; `+
			`one of type "plain" cannot`,
		planFile+`:11:16: pauseAPIServer needs a cluster that can observe and pause API servers; `+
			`one of type "plain" cannot`)
}

// wantErrors compares the lines of an error, in any order.
func wantErrors(t *testing.T, err error, want ...string) {
	t.Helper()
	var got []string
	var list Errors
	if errors.As(err, &list) {
		for _, e := range list {
			got = append(got, e.Error())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A plan that moves clocks does not go with a suite whose time is real.
func TestActionsThatNeedAClock(t *testing.T) {
	s := testSuite(t)
	s.Time = RealTime
	const now = "trigger: {definitions: [{triggerName: t, condition: {triggerType: none}}]}}\n"
	text := "testName: t\nworkload: scale\nactions:\n- {actionType: advanceTime, by: 1h, " + now
	p, err := Parse([]byte(text), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wantErrors(t, p.Validate(s),
		"p.yaml:4:16: advanceTime needs a cluster with a clock of its own, and the suite says time: real")
	s.Time = VirtualTime
	if err := p.Validate(s); err != nil {
		t.Error(err)
	}
}

// Each type of cluster takes the fields of its own, and an existing one refuses what is elsewhere.
func TestExistingCluster(t *testing.T) {
	const suite = `cluster:
  type: existing
  context: staging
  namespaces: [db, Db, db]
  nodes: 2
controllers:
- {name: db, binary: /bin/true}
- {name: other, binary: /bin/true, deployment: elsewhere/other}
workloads:
  some:
  - delete: pod/kube-system/a
  - patch: {resourceKey: pod/db/a, patch: {}}
  - apply: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kube-public}}
  - advanceTime: 1h
`
	_, err := ParseSuite([]byte(suite), "trommel.yaml")
	wantErrors(t, err,
		`trommel.yaml:4:20: namespace "Db": use lower case letters, digits and -`,
		`trommel.yaml:4:24: duplicate namespace "db"`,
		`trommel.yaml:5:10: nodes is not for a cluster of type "existing" (it is for: embedded)`,
		`trommel.yaml:7:3: on an existing cluster controller "db" needs deployment: namespace/name, one of the `+
			`manifests: what Trommel would generate may do everything`,
		`trommel.yaml:8:48: deployment elsewhere/other is not in one of the suite's namespaces (db, Db, db)`,
		`trommel.yaml:11:13: pod a is in namespace kube-system, and the suite's namespaces are db, Db, db`,
		`trommel.yaml:13:12: pod a is in namespace kube-public, and the suite's namespaces are db, Db, db`,
		`trommel.yaml:14:18: advanceTime needs a cluster that can have a clock of its own; `+
			`one of type "existing" cannot`)

	_, err = ParseSuite([]byte("cluster: {type: existing, kubeconfig: none.yaml}\n"), "trommel.yaml")
	wantErrors(t, err,
		"trommel.yaml:1:10: an existing cluster needs namespaces: the only ones in which a run may write",
		"trommel.yaml:1:39: none.yaml: no such file beside the suite")
	_, err = ParseSuite([]byte("cluster: {context: staging}\n"), "trommel.yaml")
	wantErrors(t, err,
		`trommel.yaml:1:20: context is not for a cluster of type "embedded" (it is for: existing)`)

	s, err := ParseSuite([]byte("cluster: {type: existing, context: staging, namespaces: [db]}\n"), "trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if names := s.APIServerNames(); !slices.Equal(names, []string{"apiserver-1"}) {
		t.Errorf("its API servers are %q", names)
	}
}

func TestReadyOfAKindOfCluster(t *testing.T) {
	for suite, want := range map[string]time.Duration{
		"":                        time.Minute,
		"cluster: {type: kind}\n": 3 * time.Minute,
		"cluster: {type: kind}\ntimeouts: {ready: 5s}\n": 5 * time.Second,
		"cluster: {type: kind}\ntimeouts: {hold: 5s}\n":  3 * time.Minute,
	} {
		s, err := ParseSuite([]byte(suite+"workloads: {a: []}\n"), "trommel.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if s.Timeouts.Ready != want {
			t.Errorf("%q: %s, want %s", suite, s.Timeouts.Ready, want)
		}
	}
}
