package plan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSuite(t *testing.T) {
	started := "started"
	s, err := ParseSuite([]byte(`
apiVersion: trommel.dev/v1alpha1
kind: Suite
cluster:
  apiServers: 2
  nodes: 0
  kubernetesVersion: v1.36.3
  disableControllers: [statefulset-controller]
  featureGates: {A: true, B: false}
  answers:
    - {namespace: default, pod: "db-*", container: main, command: ^ls, stdout: x, stderr: y, exitCode: 2}
    - {log: started}
    - {pod: "db-*", service: stand-ins/db}
  jobKinds: [TaskRun]
  simulatedPods: {ready: 0s, seed: 7}
  removedAPIs: false
controllers:
  - name: db
    build: {dir: ., package: ./cmd, tags: [x], ldflags: -s -w, env: {CGO_ENABLED: "0"},
      replace: {example.com/gone: example.com/kept@v1.0.0}}
    image: example.com/db:dev
    executables: {"proxy:1": valid-minimal.yaml}
    deployment: db-system/db
    args: [--v=2]
    env: {A: "1"}
    apiServer: apiserver-2
    watchList: false
    keepLeases: true
    annotatedCalls:
      - {package: example.com/x, receiver: "*T", function: F}
  - {name: sts, build: {controlPlane: kube-controller-manager}}
workloads:
  steps:
    - {name: first, apply: valid-minimal.yaml}
    - apply: {file: valid-minimal.yaml}
    - apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
    - apply: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]
    - delete: pod/default/a
    - delete: {resourceKey: pod/default/a, gracePeriod: 0s, propagation: Foreground, ignoreNotFound: true}
    - patch: {resourceKey: pod/default/a, patchType: json, subresource: status, patch: [{op: add, path: /a, value: 1}]}
    - patch: {resourceKey: pod/default/a, patch: {a: 1}}
    - wait: {resourceKey: pod/default/a, condition: "object.status.phase == 'Running'", timeout: 5s}
    - wait: {resourceKey: pod/default/a, phase: Running}
    - wait: {resourceKey: pod/default/a, absent: true}
    - sleep: 2s
    - exec: [echo, hi]
    - exec: {command: [echo], timeout: 1s}
  external: {command: [./run.sh], timeout: 5m}
  nothing:
invariants:
  - {name: kept, on: persistentvolumeclaim/default/*, never: "event == 'deleted'", message: "object.metadata.name"}
  - {name: small, always: "objects.size() < 100"}
  - {name: ends, eventually: "objects.exists(o, o.kind == 'Pod')", within: 10s}
  - {name: ends2, eventually: "true"}
variants:
  fixed:
    controllers: {db: {args: [--fixed], env: {B: "2"}, watchList: true}, sts: }
    cluster: {featureGates: {B: true, C: true}}
history: [pod/*/*, node//n1]
timeouts: {plan: 1m, hold: 5s}
`), "testdata/s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	no, yes, zero := false, true, time.Duration(0)
	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
	pod := ResourceKey{Type: "pod", Namespace: "default", Name: "a"}
	want := &Suite{
		APIVersion: APIVersion, Kind: "Suite", File: "testdata/s.yaml",
		Cluster: ClusterSpec{
			Type: "embedded", KubernetesVersion: "v1.36.3", APIServers: 2, Nodes: new(0),
			DisableControllers: []string{"statefulset-controller"},
			FeatureGates:       map[string]bool{"A": true, "B": false},
			JobKinds:           []string{"TaskRun"},
			SimulatedPods:      SimulatedPods{Ready: &zero, End: new(time.Second), Seed: 7},
			Answers: []Answer{
				{Namespace: "default", Pod: "db-*", Container: "main", Command: "^ls", Stdout: "x", Stderr: "y",
					ExitCode: 2}, {Log: &started}, {Pod: "db-*", Service: "stand-ins/db"},
			},
			RemovedAPIs: &no,
		},
		Controllers: []Controller{
			{
				Name: "db", Build: &Build{Dir: ".", Package: "./cmd", Tags: []string{"x"}, LDFlags: "-s -w",
					Env:     map[string]string{"CGO_ENABLED": "0"},
					Replace: map[string]string{"example.com/gone": "example.com/kept@v1.0.0"}},
				Image: "example.com/db:dev", Executables: map[string]string{"proxy:1": "valid-minimal.yaml"},
				Deployment: ResourceKey{Type: "deployment", Group: "apps",
					Namespace: "db-system", Name: "db"},
				Namespace: "default", ClusterRole: "cluster-admin", Args: []string{"--v=2"},
				Env:       map[string]string{"A": "1"},
				APIServer: "apiserver-2", WatchList: &no, KeepLeases: true,
				AnnotatedCalls: []AnnotatedCall{{Name: "example.com/x.(*T).F", Package: "example.com/x", Receiver: "*T",
					Function: "F"}},
			},
			{
				Name: "sts", Build: &Build{Dir: ".", Package: ".", ControlPlane: "kube-controller-manager"},
				Namespace: "default", ClusterRole: "cluster-admin", APIServer: "apiserver-1",
			},
		},
		Workloads: map[string]Workload{
			"steps": {Timeout: 2 * time.Minute, Steps: []Step{
				{Name: "first", Apply: &ApplyStep{File: "valid-minimal.yaml"}},
				{Apply: &ApplyStep{File: "valid-minimal.yaml"}},
				{Apply: &ApplyStep{Objects: []map[string]any{object}}},
				{Apply: &ApplyStep{Objects: []map[string]any{object}}},
				{Delete: &DeleteStep{ResourceKey: pod, Propagation: "Background"}},
				{Delete: &DeleteStep{ResourceKey: pod, GracePeriod: &zero, Propagation: "Foreground",
					IgnoreNotFound: true}},
				{Patch: &PatchStep{ResourceKey: pod, PatchType: "json", Subresource: "status",
					Patch: []any{map[string]any{"op": "add", "path": "/a", "value": int64(1)}}}},
				{Patch: &PatchStep{ResourceKey: pod, PatchType: "merge", Patch: map[string]any{"a": int64(1)}}},
				{Wait: &WaitStep{ResourceKey: pod, Condition: "object.status.phase == 'Running'",
					Timeout: 5 * time.Second}},
				{Wait: &WaitStep{ResourceKey: pod, Phase: "Running", Timeout: time.Minute}},
				{Wait: &WaitStep{ResourceKey: pod, Absent: true, Timeout: time.Minute}},
				{Sleep: 2 * time.Second},
				{Exec: &ExecStep{Command: []string{"echo", "hi"}, Timeout: time.Minute}},
				{Exec: &ExecStep{Command: []string{"echo"}, Timeout: time.Second}},
			}},
			"external": {Command: []string{"./run.sh"}, Timeout: 5 * time.Minute},
			"nothing":  {Timeout: 2 * time.Minute},
		},
		Invariants: []Invariant{
			{Name: "kept", On: &ResourceKey{Type: "persistentvolumeclaim", Namespace: "default", Name: "*"},
				Never: "event == 'deleted'", Message: "object.metadata.name"},
			{Name: "small", Always: "objects.size() < 100"},
			{Name: "ends", Eventually: "objects.exists(o, o.kind == 'Pod')", Within: 10 * time.Second},
			{Name: "ends2", Eventually: "true", Within: 30 * time.Second},
		},
		Variants: map[string]Variant{"fixed": {
			Controllers: map[string]VariantController{"db": {Args: []string{"--fixed"},
				Env: map[string]string{"B": "2"}, WatchList: &yes}, "sts": {}},
			Cluster: VariantCluster{FeatureGates: map[string]bool{"B": true, "C": true}},
		}},
		History: []ResourceKey{{Type: "pod", Namespace: "*", Name: "*"}, {Type: "node", Name: "n1"}},
		Timeouts: Timeouts{
			Plan: time.Minute, Step: time.Minute, Workload: 2 * time.Minute, Hold: 5 * time.Second, Ready: time.Minute,
			Settle: 15 * time.Second, Rest: 10 * time.Minute, Quiet: 2 * time.Second, Stuck: 8 * time.Second,
			Acknowledge: 5 * time.Second,
			Alive:       300 * time.Millisecond, Away: 10 * time.Second,
		},
		Time: VirtualTime,
	}
	if diff := cmp.Diff(want, s, cmpopts.IgnoreUnexported(Suite{})); diff != "" {
		t.Errorf("suite (-want +got):\n%s", diff)
	}

	v, err := s.WithVariant("fixed")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"--v=2", "--fixed"}, v.Controllers[0].Args); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "2"}, v.Controllers[0].Env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]bool{"A": true, "B": true, "C": true}, v.Cluster.FeatureGates); diff != "" {
		t.Error(diff)
	}
	if !*v.Controllers[0].WatchList {
		t.Error("watchList of the variant is not taken")
	}
	if diff := cmp.Diff(want, s, cmpopts.IgnoreUnexported(Suite{})); diff != "" {
		t.Errorf("WithVariant changed the suite (-want +got):\n%s", diff)
	}
	if _, err := s.WithVariant("other"); err == nil || err.Error() != `unknown variant "other" (the suite has: fixed)` {
		t.Errorf("unknown variant: %v", err)
	}
}

func TestInvalidSuites(t *testing.T) {
	for _, file := range files(t, "testdata/suite-invalid-*.yaml") {
		_, err := LoadSuite(file)
		checkWanted(t, file, err)
	}
}

func TestFindSuite(t *testing.T) {
	got, err := FindSuite("testdata/valid-minimal.yaml")
	if err != nil || !strings.HasSuffix(got, "/plan/testdata/trommel.yaml") {
		t.Errorf("FindSuite: %s, %v", got, err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"s/trommel.yaml": "{}", "p/folder.yaml": "suite: ../s",
		"p/file.yaml": "suite: ../s/trommel.yaml", "p/wrong.yaml": "workload: w\nsuite: ../t"} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	for _, name := range []string{"p/folder.yaml", "p/file.yaml"} {
		if got, err := FindSuite(filepath.Join(dir, name)); err != nil || got != filepath.Join(dir, "s/trommel.yaml") {
			t.Errorf("FindSuite(%s): %s, %v", name, got, err)
		}
	}
	wrong := filepath.Join(dir, "p/wrong.yaml")
	if _, err := FindSuite(wrong); err == nil || !strings.HasPrefix(err.Error(),
		wrong+`:2:8: suite "../t": no such file, and no trommel.yaml with workload "w" in `) {
		t.Errorf("FindSuite of a plan that names a missing suite: %v", err)
	}
	got, err = FindSuite("../testdata/plans/sieve/modes/nifi_intmd_1.yaml")
	if err == nil || !strings.Contains(err.Error(), "no suite: there is no trommel.yaml in /") {
		t.Errorf("FindSuite without a suite: %q, %v", got, err)
	}
}

// A plan whose relative path to its suite leads nowhere was moved.
func TestFindSuiteOfMovedPlan(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"project/trommel.yaml":        "workloads: {create: {steps: []}, delete: {steps: []}}",
		"project/nested/trommel.yaml": "workloads: {other: {steps: []}}",
		"project/job.yaml":            "workloads: {create: {steps: []}}",
		"project/broken/trommel.yaml": "workloads: {create: [",
	} {
		writeFile(t, filepath.Join(root, name), text)
	}
	const generated = "suite: ../../../trommel.yaml\nworkload: create\n"
	for _, tt := range []struct {
		name, plan, text, dir string // dir: the working directory
		want, wantErr         string
	}{
		{name: "below the suite", plan: "project/plans/p.yaml", text: generated, dir: ".",
			want: "project/trommel.yaml"},
		{name: "beside the suite", plan: "project/p.yaml", text: generated, dir: ".", want: "project/trommel.yaml"},
		{name: "the nearest one lacks the workload", plan: "project/nested/p.yaml", text: generated, dir: ".",
			want: "project/trommel.yaml"},
		{name: "the nearest one cannot be read", plan: "project/broken/p.yaml", text: generated, dir: ".",
			want: "project/trommel.yaml"},
		{name: "a plan with its own steps", plan: "project/nested/p.yaml", dir: ".",
			text: "suite: ../../../trommel.yaml\nsteps: []\n", want: "project/nested/trommel.yaml"},
		{name: "a suite of another name", plan: "project/plans/p.yaml", dir: ".",
			text: "suite: ../../job.yaml\nworkload: create\n", want: "project/job.yaml"},
		{name: "a directory", plan: "project/plans/p.yaml", text: "suite: ../../op\nworkload: create\n",
			dir: ".", want: "project/trommel.yaml"},
		{name: "in the working directory", plan: "elsewhere/p.yaml", text: generated, dir: "project",
			want: "project/trommel.yaml"},
		{name: "above the working directory", plan: "elsewhere/p.yaml", text: generated, dir: "project/nested",
			want: "project/trommel.yaml"},
		{name: "above the plan comes before the working directory", plan: "project/nested/p.yaml", dir: "project",
			text: "suite: gone/trommel.yaml\nworkload: other\n", want: "project/nested/trommel.yaml"},
		{name: "nowhere", plan: "elsewhere/p.yaml", text: generated, dir: ".",
			wantErr: `elsewhere/p.yaml:1:8: suite "../../../trommel.yaml": no such file, and no trommel.yaml with ` +
				`workload "create" in ROOT/elsewhere or above, nor in the working directory ROOT or above; ` +
				`name the suite with -c`},
		{name: "no suite has the workload", plan: "project/plans/p.yaml", dir: "project/plans",
			text: "suite: ../../../trommel.yaml\nworkload: scale\n",
			wantErr: `project/plans/p.yaml:1:8: suite "../../../trommel.yaml": no such file, and no trommel.yaml ` +
				`with workload "scale" in ROOT/project/plans or above; name the suite with -c`},
		{name: "an absolute path", plan: "project/p.yaml", text: "suite: /nowhere/trommel.yaml\nworkload: create\n",
			dir: ".", wantErr: `project/p.yaml:1:8: suite "/nowhere/trommel.yaml": no such file`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(root, tt.plan)
			writeFile(t, file, tt.text)
			defer os.Remove(file)
			t.Chdir(filepath.Join(root, tt.dir))
			got, err := FindSuite(file)
			if tt.wantErr != "" {
				want := root + "/" + strings.ReplaceAll(tt.wantErr, "ROOT", root)
				if err == nil || err.Error() != want {
					t.Errorf("got %q, error\n%v, want\n%s", got, err, want)
				}
				return
			}
			if err != nil || got != filepath.Join(root, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSuiteCheckResources(t *testing.T) {
	s, err := ParseSuite([]byte(`controllers: [{name: a, binary: ./a}]
workloads:
  w:
  - delete: widget/default/a
  - delete: {resourceKey: pod/default/a}
  - patch: {resourceKey: &gear gear.example.com/default/a, patch: {a: 1}}
  - wait: {resourceKey: *gear, absent: true}
invariants:
- {name: i, on: wheel/default/*, never: object == null}
- {name: j, eventually: objects.size() > 0}
history: [pod/*/*, axle//a]
`), "testdata/f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	err = s.CheckResources(func(k ResourceKey) error {
		if k.Type == "pod" {
			return nil
		}
		return errors.New("no " + k.Type)
	})
	const want = "testdata/f.yaml:4:13: no widget\ntestdata/f.yaml:6:26: no gear\ntestdata/f.yaml:7:25: no gear\n" +
		"testdata/f.yaml:9:17: no wheel\ntestdata/f.yaml:11:20: no axle"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Mistakes in a plan itself and against its suite are reported together.
func TestLoadWithSuite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("testname: a\nworkload: nothing\nactions:\n- actionType: killController\n"+
		"  actionTarget: nobody\n  waitAfter: soon\n"+
		"  trigger: {definitions: [{triggerName: a, condition: {triggerType: none}}]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := LoadWith(file, testSuite(t))
	var list Errors
	if !errors.As(err, &list) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%d:%d: %s", e.Line, e.Col, e.Message))
	}
	want := []string{
		`1:1: unknown field "testname" in a plan; did you mean "testName"?`,
		`2:11: unknown workload "nothing" (the suite has: recreate, scale)`,
		`5:17: unknown controller "nobody" (the suite has: db-operator, backup-operator)`,
		`6:14: waitAfter: "soon" is not a duration; write it like 20s, 1m30s or 500ms`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
