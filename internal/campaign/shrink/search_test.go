package shrink

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

const suiteText = `
kind: Suite
controllers:
- {name: db, build: {dir: .}}
workloads:
  all:
    steps:
    - name: create
      apply:
      - {apiVersion: example.com/v1, kind: Database, metadata: {name: a, namespace: default}}
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: default}}
    - name: ready
      wait: {resourceKey: database/default/a, condition: has(object.status)}
    - name: pause
      sleep: 4s
    - name: night
      advanceTime: 9h
    - name: grow
      patch: {resourceKey: database/default/a, patch: {spec: {size: 2}}}
    - name: delete
      delete: database/default/a
    - name: gone
      wait: {resourceKey: database/default/a, absent: true}
    - name: pod
      wait: {resourceKey: pod/default/x, absent: true}
`

const planText = `
testName: big
workload: all
actions:
- actionType: pauseAPIServer
  actionTarget: apiserver-3
  waitAfter: 10s
  trigger:
    definitions:
    - triggerName: a
      condition:
        triggerType: onObjectUpdate
        resourceKey: database/default/a
        prevState: {spec: {size: 1}, metadata: {deletionTimestamp: $absent}}
        curState: {spec: {size: 2, list: [1, 2]}, status: {}}
        where: object.spec.size > 1
        repeat: 7
      observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-3}
    - triggerName: b
      condition: {triggerType: onObjectCreation, resourceKey: secret/default/a}
      observationPoint: {timing: afterControllerWrite, observeBy: db, reconciler: a}
    - triggerName: c
      condition: {triggerType: onTimeout, timeout: 8s}
    expression: a & b ; a | c
- actionType: killController
  async: true
  trigger: {definitions: [{triggerName: t, condition: {triggerType: onTimeout, timeout: 1500ms}}]}
- actionType: startController
  trigger: {definitions: [{triggerName: t, condition: {triggerType: none}}]}
- actionType: reconnectController
  reconnectAPIServer: apiserver-3
  reconnectBy: cut
  waitBefore: 1s
  trigger: {definitions: [{triggerName: t, condition: {triggerType: none}}]}
- actionType: resumeAPIServer
  actionTarget: apiserver-3
  trigger: {definitions: [{triggerName: t, condition: {triggerType: onTimeout, timeout: 5s}}]}
- actionType: advanceTime
  by: 48h
  trigger: {definitions: [{triggerName: t, condition: {triggerType: none}}]}
`

func load(t *testing.T) (*plan.Suite, *plan.Plan) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{plan.SuiteFile: suiteText, "plan.yaml": planText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.LoadWith(filepath.Join(dir, "plan.yaml"), suite)
	if err != nil {
		t.Fatal(err)
	}
	return suite, p
}

var scopes = []plan.ResourceKey{
	{Type: "database", Group: "example.com", Namespace: "default", Name: "a"},
	{Type: "secret", Namespace: "default", Name: "a"},
	{Type: "secret", Namespace: "default", Name: "b"},
}

// shrunk searches for the smallest plan whose text, with the steps of its workload, meets the condition.
func shrunk(t *testing.T, stepsLast bool, shows func(text string) bool) *search {
	t.Helper()
	suite, p := load(t)
	s := newSearch(suite, copied(t, p), func(_ context.Context, p *plan.Plan) (bool, string, error) {
		if err := p.Validate(suite); err != nil {
			t.Errorf("an invalid plan is tried: %v\n%s", err, textOf(p))
		}
		return shows(whole(suite, p)), "", nil
	})
	s.stepsLast, s.scopes = stepsLast, scopes
	if !shows(whole(suite, p)) {
		t.Fatalf("the plan itself does not meet the condition:\n%s", whole(suite, p))
	}
	if err := s.smallest(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !shows(whole(suite, s.best)) {
		t.Errorf("the result does not meet the condition:\n%s", s.text)
	}
	return s
}

func copied(t *testing.T, p *plan.Plan) *plan.Plan {
	t.Helper()
	q, err := clone(p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// whole is a plan's text with the steps that it runs.
func whole(suite *plan.Suite, p *plan.Plan) string {
	q := *p
	q.Workload, q.Steps = "", stepsOf(suite, p)
	return textOf(&q)
}

// singles lists all reductions by one part.
func singles(s *search) []edit {
	all := simplifications(s.best, s.scopes)
	for _, k := range s.kinds() {
		for i, what := range k.list(s.best) {
			all = append(all, edit{"without " + what, func(p *plan.Plan) bool {
				return k.drop(p, func(j int) bool { return j == i })
			}})
		}
	}
	return all
}

// No single reduction of the result meets the condition.
func checkMinimal(t *testing.T, s *search, shows func(text string) bool) {
	t.Helper()
	for _, e := range singles(s) {
		if p, text := s.edited(e); p != nil && text != s.text && shows(whole(s.suite, p)) {
			t.Errorf("it could be smaller: %s:\n%s", e.what, text)
		}
	}
}

func TestSmallest(t *testing.T) {
	has := func(all ...string) func(string) bool {
		return func(text string) bool {
			return !slices.ContainsFunc(all, func(s string) bool { return !strings.Contains(text, s) })
		}
	}
	const one = "apiVersion: trommel.dev/v1alpha1\nkind: TestPlan\ntestName: big\n"
	const database = `steps:
  - name: create
    apply:
      objects:
        - apiVersion: example.com/v1
          kind: Database
          metadata:
            name: a
            namespace: default
`
	const kept = `steps:
  - name: create
    apply:
      objects:
        - apiVersion: v1
          kind: ConfigMap
          metadata:
            name: c
            namespace: default
`
	for _, tt := range []struct {
		name  string
		shows func(string) bool
		want  string
	}{
		{"nothing is needed but an object", has("kind: ConfigMap"), one + kept + "actions: []\n"},
		{"a deletion needs the creation", has("name: delete"), one + database + `  - name: delete
    delete:
      resourceKey: database/default/a
actions: []
`},
		{"a sleep is shortened", has("sleep:"), one + `steps:
  - name: pause
    sleep: 1s
actions: []
`},
		{"a jump is shortened", has("advanceTime: "), one + `steps:
  - name: night
    advanceTime: 1s
actions: []
`},
		{"the jump of an action is shortened", func(text string) bool {
			return has("by: ", "name: pod")(text) && !has("by: 1s")(text)
		}, one + `steps:
  - name: pod
    wait:
      resourceKey: pod/default/x
      absent: true
actions:
  - actionType: advanceTime
    trigger:
      definitions:
        - triggerName: t
          condition:
            triggerType: none
      expression: t
    by: 1.4s
`},
		{"an action at once", has("pauseAPIServer", "name: pod"), one + `steps:
  - name: pod
    wait:
      resourceKey: pod/default/x
      absent: true
actions:
  - actionType: pauseAPIServer
    actionTarget: apiserver-3
    pauseScope: database.example.com/default/a
    trigger:
      definitions:
        - triggerName: now
          condition:
            triggerType: none
      expression: now
`},
		{"a field and a number", func(text string) bool {
			return has("\n                size: 2\n", "name: pod")(text) && (strings.Contains(text, "repeat: 3") ||
				strings.Contains(text, "repeat: 7"))
		}, one + `steps:
  - name: pod
    wait:
      resourceKey: pod/default/x
      absent: true
actions:
  - actionType: pauseAPIServer
    actionTarget: apiserver-3
    pauseScope: database.example.com/default/a
    trigger:
      definitions:
        - triggerName: a
          condition:
            triggerType: onObjectUpdate
            resourceKey: database/default/a
            curState:
              spec:
                size: 2
            repeat: 3
          observationPoint:
            timing: afterAPIServerRecv
            observeBy: apiserver-3
      expression: a
`},
		{"kill and start become a restart", func(text string) bool {
			return has("name: pod")(text) && (strings.Contains(text, "restartController") ||
				has("killController", "startController")(text))
		}, one + `steps:
  - name: pod
    wait:
      resourceKey: pod/default/x
      absent: true
actions:
  - actionType: restartController
    actionTarget: db
    trigger:
      definitions:
        - triggerName: now
          condition:
            triggerType: none
      expression: now
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, last := range []bool{false, true} {
				s := shrunk(t, last, tt.shows)
				if s.text != tt.want {
					t.Errorf("got\n%s\nwant\n%s", s.text, tt.want)
				}
				checkMinimal(t, s, tt.shows)
			}
		})
	}
}

// Whatever lines of the plan are needed, the result has them, and nothing can be taken away.
func TestMinimal(t *testing.T) {
	suite, p := load(t)
	lines := strings.Split(strings.TrimSpace(whole(suite, p)), "\n")
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		var needed []string
		for range 1 + random.IntN(4) {
			needed = append(needed, strings.TrimSpace(lines[3+random.IntN(len(lines)-3)]))
		}
		shows := func(text string) bool {
			return !slices.ContainsFunc(needed, func(line string) bool { return !strings.Contains(text, line) })
		}
		t.Run(fmt.Sprintf("%d", seed), func(t *testing.T) {
			s := shrunk(t, seed%2 == 0, shows)
			checkMinimal(t, s, shows)
			if t.Failed() {
				t.Logf("needed: %q", needed)
			}
		})
	}
}

// Nothing is tried twice, and an error ends the search with the best plan so far.
func TestTries(t *testing.T) {
	suite, p := load(t)
	seen := map[string]bool{}
	tries := 0
	s := newSearch(suite, copied(t, p), func(_ context.Context, p *plan.Plan) (bool, string, error) {
		if text := textOf(p); seen[text] {
			t.Errorf("tried twice:\n%s", text)
		} else {
			seen[text] = true
		}
		if tries++; tries == 30 {
			return false, "", errBudget
		}
		return strings.Contains(textOf(p), "pauseAPIServer"), "", nil
	})
	s.scopes = scopes
	if err := s.smallest(context.Background()); err == nil && tries >= 30 {
		t.Error("the error is lost")
	}
	if len(s.best.Actions) != 1 {
		t.Errorf("%d actions", len(s.best.Actions))
	}
}
