package record

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

func TestEachJudgeHasTraits(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "judges.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Judge") {
			return true
		}
		names++
		name := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)
		if _, ok := judges[name]; !ok {
			t.Errorf("%s has no traits", spec.Names[0].Name)
		}
		return true
	})
	if names < 25 || names != len(judges) {
		t.Errorf("%d names, %d traits", names, len(judges))
	}
}

// Records of the version before are read.
func TestFormerNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"judge": "invariant", "title": "a"}`:  JudgeInvariant,
		`{"oracle": "invariant", "title": "a"}`: JudgeInvariant,
		`{"oracle": "reference", "title": "a"}`: JudgeBaseline,
	} {
		var f Finding
		if err := json.Unmarshal([]byte(text), &f); err != nil || f.Judge != want || f.Title != "a" {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
		if again, err := json.Marshal(f); err != nil || !strings.Contains(string(again), `"judge":"`+want+`"`) {
			t.Errorf("%s, %v", again, err)
		}
	}
	if f := (Finding{Judge: JudgeBaseline}); !f.Of("reference") || !f.Of("baseline") {
		t.Error("a test that expects findings of the judge by its former name fails")
	}
	var p Phase
	err := json.Unmarshal([]byte(`{"name": "oracles", "duration": 5}`), &p)
	if err != nil || p != (Phase{"judges", 5}) {
		t.Errorf("%+v, %v", p, err)
	}
}
