package propose

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
)

func TestEffect(t *testing.T) {
	const sample = "database/default/db"
	before := []string{
		"created " + sample + ` {"status": {}}`,
		`created statefulset.apps/default/db {"spec": {"replicas": 2, "template": {"a": 1, "b": {"c": 1}}}}`,
		`created pod/default/db-0 {}`,
	}
	const (
		set    = "updated statefulset.apps/default/db "
		status = "updated " + sample + " "
	)
	one := []string{set + `{"spec": {"replicas": 2, "template": {"a": 2, "b": {"c": 1}}}}`}
	for _, tt := range []struct {
		name       string
		rank       int
		one, other []string
		want       bool
	}{
		{"other fields of one template", rankQuantity, one,
			[]string{set + `{"spec": {"replicas": 2, "template": {"a": 1, "b": {"c": 2}}}}`}, true},
		{"another part of it", rankQuantity, one,
			[]string{set + `{"spec": {"replicas": 3, "template": {"a": 1, "b": {"c": 1}}}}`}, false},
		{"counts are never alike", rankReplicas, one, one, false},
		{"one of them also deletes a pod", rankImage, one,
			append(slices.Clone(one), "deleted pod/default/db-0"), false},
		{"how the status gets there does not matter", rankImage, one,
			append(slices.Clone(one), status+`{"status": {"ready": 1}}`), true},
		{"nothing but the status", rankBoolean, []string{status + `{"status": {"a": 1}}`},
			[]string{status + `{"status": {"b": 1}}`}, false},
		{"generated names", rankImage, []string{"created job.batch/default/x-#1 {}"},
			[]string{"created job.batch/default/x-#2 {}"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			of := func(after []string) string {
				changes := history(t, append(slices.Clone(before), after...)...)[len(before):]
				for i := range changes {
					changes[i].By = controller
				}
				return effect(tt.rank, changes, sample)
			}
			if got := of(tt.one) != "" && of(tt.one) == of(tt.other); got != tt.want {
				t.Errorf("%q, %q", of(tt.one), of(tt.other))
			}
		})
	}
}

// proposed runs with the fake controller, and returns what it proposes and what not.
func proposed(t *testing.T, f *fake, fields ...string) (workloads []string, dropped []string, result *Result) {
	t.Helper()
	suite, err := plan.LoadSuite("../../../examples/database-operator/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f.t = t
	result, err = Run(t.Context(), Config{
		Runner: f, Suite: suite, Dir: filepath.Join(t.TempDir(), "runs"), Fields: fields,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range result.Workloads {
		workloads = append(workloads, w.Name)
	}
	for _, d := range result.Dropped {
		dropped = append(dropped, d.Field+": "+d.Reason)
	}
	return workloads, dropped, result
}

// Two fields with which the controller does the same give one workload; the other field says which.
func TestNearDuplicatesAreMerged(t *testing.T) {
	suite, err := plan.LoadSuite("../../../examples/database-operator/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &proposer{
		Config: Config{Runner: &fake{t: t, template: true}, Suite: suite, Dir: filepath.Join(t.TempDir(), "runs"),
			Progress: t.Logf},
		result: &Result{}, effects: map[string]string{},
	}
	if p.sample, err = findSample(suite, "", ""); err != nil {
		t.Fatal(err)
	}
	if err := p.creation(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"image", "storageClassName"} {
		path := []string{"spec", field}
		f := Field{Path: path, rank: rankImage, Changes: []Change{
			{Path: path, Label: "changed", From: lookup(p.created, path), To: "b"}}}
		if err := p.field(t.Context(), f, kebab(field)); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, w := range p.result.Workloads {
		names = append(names, w.Name)
	}
	want := []string{"create", "image-changed", "image-changed-and-back", "image-overtaken"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Dropped{{"spec.storageClassName",
		`spec.storageClassName is set to "b": the controllers do the same after it as in workload image-changed`}},
		p.result.Dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
}

// Without anything to wait for, some workloads are the same: only one of them is proposed, and no plan can be made.
func TestWorkloadsOfAControllerThatDoesNothing(t *testing.T) {
	workloads, dropped, result := proposed(t, &fake{quiet: true})
	if diff := cmp.Diff([]string{"create", "delete", "recreate", "two"}, workloads); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
	if !slices.Contains(dropped, "delete-early: it does the same as delete") {
		t.Errorf("dropped: %q", dropped)
	}
	var want []Dropped
	for _, name := range workloads {
		want = append(want, Dropped{name, "no controller under test writes anything in it"})
	}
	if diff := cmp.Diff(want, result.Planless); diff != "" {
		t.Errorf("without a plan (-want +got):\n%s", diff)
	}
}

// A deletion is over when the volume claims are gone that Kubernetes deletes with it, whoever touches them; what stays
// is said.
func TestDeletionsWaitForClaimsAndStatefulSets(t *testing.T) {
	_, _, result := proposed(t, &fake{claims: true}, "spec.image")
	waits := map[string][]string{}
	for _, w := range result.Workloads {
		for _, s := range w.Steps {
			if s.Wait != nil && s.Wait.Absent {
				waits[w.Name] = append(waits[w.Name], s.Wait.ResourceKey.Type+" "+s.Wait.ResourceKey.Name)
			}
		}
		if w.Name == "delete" && !strings.HasSuffix(w.Comment, "\nWhat stays: persistentvolumeclaim data-db-0.") {
			t.Errorf("the comment is %q", w.Comment)
		}
	}
	all := []string{"database db", "statefulset db", "persistentvolumeclaim data-db-1"}
	if diff := cmp.Diff(map[string][]string{
		"delete": all, "recreate": {"database db"}, "recreate-later": all, "delete-early": all, "two": all,
	}, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if len(result.Planless) > 0 {
		t.Errorf("without a plan: %v", result.Planless)
	}
}

func TestWhyDropped(t *testing.T) {
	for _, tt := range []struct {
		rules map[string]int
		want  string
	}{
		{nil, "no pattern has a moment in it at which it could strike"},
		{map[string]int{"a": 1, "b": 3, "c": 2, "d": 1, "e": 1},
			"3 moments: b; 2 moments: c; 1 moment: a; and 2 other reasons"},
	} {
		if got := whyDropped(tt.rules); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.rules, got, tt.want)
		}
	}
}
