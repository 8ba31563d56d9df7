package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const twoClusters = `
clusters: {west: {apiServers: 2}, east: {apiServers: 1}}
controllers:
- {name: a, build: {dir: .}}
- {name: b, build: {dir: .}, cluster: east, kubeconfigs: {west: {secret: default/west}}}
workloads:
  w:
  - sleep: 1s
  - {cluster: east, delete: configmap/default/a}
  - delete: configmap/default/a
`

func TestClusters(t *testing.T) {
	s, err := ParseSuite([]byte(twoClusters), "clusters_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	got = append(got, s.ClusterNames()...)
	got = append(got, s.APIServerNames()...)
	for _, c := range s.Controllers {
		got = append(got, c.Name+" "+c.Cluster+" "+c.APIServer)
	}
	for _, step := range s.Workloads["w"].Steps {
		got = append(got, "step "+step.Cluster)
	}
	got = append(got, s.Controllers[1].Kubeconfigs["west"].Key)
	want := []string{
		"west", "east", "west/apiserver-1", "west/apiserver-2", "east/apiserver-1", "a west west/apiserver-1",
		"b east east/apiserver-1", "step ", "step east", "step west", "kubeconfig",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text, err := MarshalSuite(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseSuite(text, "clusters_test.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(s.ClusterNames(), again.ClusterNames()); diff != "" {
		t.Errorf("written and read again: %s", diff)
	}
}

// What a plan leaves out is completed, and a plan that was completed and written is read again as the same.
func TestClustersOfPlan(t *testing.T) {
	s, err := ParseSuite([]byte(twoClusters), "clusters_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse([]byte(`
kind: TestPlan
testName: p
actions:
- actionType: pauseAPIServer
  actionTarget: apiserver-1
  cluster: east
  trigger:
    definitions:
    - triggerName: x
      condition: {triggerType: onObjectCreation, resourceKey: pod/default/a}
      observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-2}
    - triggerName: y
      condition: {triggerType: onObjectCreation, resourceKey: pod/default/a}
      observationPoint: {timing: afterControllerWrite, observeBy: a, cluster: east}
    expression: x;y
- actionType: pauseController
  actionTarget: a
  pauseAt: beforeControllerWrite
  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}
- actionType: pauseController
  actionTarget: a
  pauseAt: beforeControllerWrite
  pauseScope: pod/default/a
  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}
- actionType: delete
  resourceKey: pod/default/a
  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}
- actionType: disturbConnection
  actionTarget: b
  delay: 1500ms
  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}
- actionType: restoreConnection
  actionTarget: b
  cluster: west
  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}
`), "p.yaml", s)
	if err != nil {
		t.Fatal(err)
	}
	show := func(p *Plan) (all []string) {
		for _, a := range p.Actions {
			all = append(all, string(a.Type)+" "+a.Target+" "+a.Cluster)
			for _, d := range a.Trigger.Definitions {
				all = append(all, d.Observe.ObserveBy+" "+d.Observe.Cluster)
			}
		}
		return all
	}
	want := []string{
		"pauseAPIServer east/apiserver-1 east", "west/apiserver-2 west", "a east",
		"pauseController a ", " ", "pauseController a west", " ", "delete  west", " ",
		"disturbConnection b west", " ", "restoreConnection b west", " ",
	}
	if diff := cmp.Diff(want, show(p)); diff != "" {
		t.Error(diff)
	}
	if d := EffectOf[*Disconnection](&p.Actions[4]); *d != (Disconnection{"b", "west", 1500 * time.Millisecond}) {
		t.Errorf("disturbs %v", d)
	}
	text, err := Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parse(text, "p.yaml", s)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(want, show(again)); diff != "" {
		t.Error(diff)
	}
}

func TestMistakesInClusters(t *testing.T) {
	for _, tt := range []struct{ name, suite, want string }{
		{"both", "cluster: {nodes: 1}\nclusters: {a: {}, b: {}}",
			"s.yaml:1:10: the suite has both cluster and clusters; it takes one"},
		{"one", "clusters: {a: {}}",
			"s.yaml:1:11: clusters has 1; a suite with one cluster says what it is with cluster:"},
		{"name", "clusters: {A.b: {}, b: {}}",
			`s.yaml:1:12: cluster name "A.b": use up to 30 lower case letters, digits and -`},
		{"duplicate", "clusters: {a: {}, b: {}, a: {}}", `s.yaml:1:26: duplicate "a" in clusters; first at line 1`},
		{"version", "clusters: {a: {}, b: {kubernetesVersion: \"1.35\"}}",
			`s.yaml:1:42: all clusters of a suite must have one kubernetesVersion; that of a is ""`},
		{"controller", "clusters: {a: {}, b: {}}\ncontrollers: [{name: x, binary: clusters_test.go, cluster: c}]",
			`s.yaml:2:60: unknown cluster "c" (the suite has: a, b)`},
		{"kubeconfig", "clusters: {a: {}, b: {}}\ncontrollers: [{name: x, binary: clusters_test.go, " +
			"kubeconfigs: {c: {}}}]",
			`s.yaml:2:65: unknown cluster "c" (the suite has: a, b)`},
		{"own", "clusters: {a: {}, b: {}}\ncontrollers: [{name: x, binary: clusters_test.go, kubeconfigs: {a: {}}}]",
			`s.yaml:2:65: controller "x" runs in a, where it has a service account; ` +
				`kubeconfigs are for the other clusters`},
		{"secret", "clusters: {a: {}, b: {}}\ncontrollers: [{name: x, binary: clusters_test.go, " +
			"kubeconfigs: {b: {secret: x}}}]", `s.yaml:2:77: secret "x": write namespace/name`},
		{"step", "clusters: {a: {}, b: {}}\nworkloads: {w: [{cluster: c, delete: pod/default/a}]}",
			`s.yaml:2:27: unknown cluster "c" (the suite has: a, b)`},
		{"manifest", "clusters: {a: {}, b: {}}\nmanifests: [{cluster: c, path: clusters_test.go}]",
			`s.yaml:2:23: unknown cluster "c" (the suite has: a, b)`},
		{"invariant", "clusters: {a: {}, b: {}}\ninvariants: [{name: i, cluster: c, eventually: \"true\"}]",
			`s.yaml:2:33: unknown cluster "c" (the suite has: a, b)`},
		{"only one", "workloads: {w: [{cluster: c, delete: pod/default/a}]}",
			`s.yaml:1:27: cluster "c": the suite has only one cluster, which has no name; ` +
				`several are named in clusters:`},
		{"server", "clusters: {a: {apiServers: 1}, b: {}}\ncontrollers: [{name: x, binary: clusters_test.go, " +
			"apiServer: apiserver-2}]", `s.yaml:2:62: unknown API server "a/apiserver-2" ` +
			`(the suite has: a/apiserver-1)`},
		{"manifest of a build", "clusters: {a: {}, b: {}}\n" +
			"builds: {v1: {manifests: [{path: clusters_test.go}, {cluster: c, path: clusters_test.go}]}}",
			`s.yaml:2:63: unknown cluster "c" (the suite has: a, b)`},
		{"manifest of a build of one", "builds: {v1: {manifests: [{cluster: c, path: clusters_test.go}]}}",
			`s.yaml:1:37: cluster "c": the suite has only one cluster, which has no name; ` +
				`several are named in clusters:`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseSuite([]byte(tt.suite), "s.yaml")
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestMistakesInClustersOfPlan(t *testing.T) {
	s, err := ParseSuite([]byte(twoClusters), "clusters_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const head = "kind: TestPlan\ntestName: p\nactions:\n"
	const now = "  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}\n"
	for _, tt := range []struct{ name, actions, want string }{
		{"action", "- actionType: delete\n  resourceKey: pod/default/a\n  cluster: north\n" + now,
			`p.yaml:6:12: unknown cluster "north" (the suite has: west, east)`},
		{"server", "- actionType: killAPIServer\n  actionTarget: apiserver-2\n  cluster: east\n" + now,
			`p.yaml:5:17: unknown API server "east/apiserver-2" ` +
				`(the suite has: west/apiserver-1, west/apiserver-2, east/apiserver-1)`},
		{"controller", "- actionType: killController\n  actionTarget: a\n  cluster: east\n" + now,
			`p.yaml:6:12: killController has no cluster; it has: actionTarget`},
		{"point", "- actionType: killController\n  actionTarget: a\n  trigger: {definitions: [{triggerName: x, " +
			"condition: {triggerType: onReconcile}, observationPoint: {timing: afterReconcile, observeBy: a, " +
			"cluster: east}}]}\n", `p.yaml:6:149: onReconcile has no object, so it is in no cluster`},
		{"no connection", "- actionType: disturbConnection\n  actionTarget: a\n" + now,
			`p.yaml:5:17: the controller "a" has no kubeconfigs of other clusters, so there is no connection that ` +
				`disturbConnection could be about`},
		{"own cluster", "- actionType: restoreConnection\n  actionTarget: b\n  cluster: east\n" + now,
			`p.yaml:6:12: restoreConnection is about another cluster, and the controller "b" runs in east`},
		{"moved there", "- actionType: reconnectController\n  actionTarget: a\n" +
			"  reconnectAPIServer: east/apiserver-1\n" + now,
			`p.yaml:6:23: the controller "a" has no kubeconfig of the cluster east`},
		{"disrupted elsewhere", "- actionType: disrupt\n  disruption: {name: d, controller: b, cpuPressure: {}}\n" +
			"  cluster: west\n" + now,
			`p.yaml:6:12: the controller that is disrupted runs in cluster "east", not in "west"`},
		{"cycle", "- actionType: cycleNodes\n  cycle: {name: x, simulatedGroup: {desiredCapacity: 1}}\n" +
			"  cluster: north\n" + now,
			`p.yaml:6:12: unknown cluster "north" (the suite has: west, east)`},
		{"no delay", "- actionType: disturbConnection\n  actionTarget: b\n  delay: 0s\n" + now,
			`p.yaml:6:10: delay is 0; leave it out to let nothing pass`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse([]byte(head+tt.actions), "p.yaml", s)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// Nothing simulates nodes in a cluster that has none and in which no controller runs.
func TestCycleInASmallCluster(t *testing.T) {
	s, err := ParseSuite([]byte("clusters: {a: {nodes: 0}, b: {nodes: 0}, c: {}}\n"+
		"controllers: [{name: x, binary: clusters_test.go}]"), "clusters_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for cluster, want := range map[string]string{
		"a": "", "c": "",
		"b": "p.yaml:4:15: the cluster b has nodes: 0 and no controller of the suite, so that nothing simulates " +
			"nodes there; give it nodes",
	} {
		_, err := parse([]byte("kind: TestPlan\ntestName: p\nactions:\n- actionType: cycleNodes\n  cluster: "+cluster+
			"\n  cycle: {name: x, simulatedGroup: {desiredCapacity: 1}}\n"+
			"  trigger: {definitions: [{triggerName: x, condition: {triggerType: none}}]}\n"), "p.yaml", s)
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: got %s\nwant %s", cluster, got, want)
		}
	}
}
