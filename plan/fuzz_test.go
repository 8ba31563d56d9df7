package plan

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// checkErrors checks that every mistake has a position in the file.
func checkErrors(t *testing.T, data []byte, err error) {
	var list Errors
	if !errors.As(err, &list) || len(list) == 0 {
		t.Fatalf("error %v (%T), want Errors", err, err)
	}
	lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 2
	for _, e := range list {
		if e.Line < 1 || e.Col < 1 || e.Line > lines || e.Message == "" {
			t.Fatalf("mistake %+v in a file of %d lines", e, lines)
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	for _, file := range append(files(f, "testdata/*valid-*.yaml"),
		files(f, sieveDir+"/*/*_*.yaml", sieveDir+"/*/*-1.yaml")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < 10_000 {
			f.Add(data)
		}
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(": \"\u008556}\neexitCod\u0085"))
	f.Add([]byte("actions: [{trigger: {expression: >-\n  a\n  b}}]"))
	f.Add([]byte(merged))
	f.Add([]byte("actions: [{<<: [&a {async: true}, *b]}, &b {<<: *a, <<: 1}]"))
	suite := testSuite(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data, "f.yaml")
		if err != nil {
			checkErrors(t, data, err)
			return
		}
		checkRoundTrip(t, p)
		if err := p.Validate(suite); err != nil {
			checkErrors(t, data, err)
		}
	})
}

func FuzzParseSuite(f *testing.F) {
	for _, file := range files(f, "testdata/trommel.yaml", "testdata/suite-*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("controllers:\n- &a {name: a, binary: ./a}\n- {<<: *a, name: b}\nvariants: {v: {controllers: {a: &e " +
		"{env: {A: b}}, b: {<<: [*e]}}}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ParseSuite(data, "testdata/f.yaml"); err != nil {
			checkErrors(t, data, err)
		}
	})
}

// Any text round-trips, as a value and as a name.
func FuzzMarshalText(f *testing.F) {
	for _, s := range []string{"", "a", "yes", "1", "~", " a", "a ", "a\n", "\na", "a\n\n b\n", "a: b", "#", "- a",
		"\t", "é\u2028", "\x00", "'\"", "<<", "a\r\nb", "|", "2024-01-01", "\ufeff", "=", "0x1f", "! a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ToValidUTF8(s, "") != s {
			return
		}
		p := &Plan{APIVersion: APIVersion, Kind: "TestPlan", TestName: "built", Description: s, Actions: []Action{{
			Type: PatchObject,
			Writing: Writing{
				ResourceKey: ResourceKey{Type: "pod", Namespace: "default", Name: "a"},
				PatchType:   "merge",
				Patch:       map[string]any{s: s, "list": []any{s, map[string]any{s: []any{}}}},
			},
			Trigger: Trigger{Definitions: []Definition{{Name: "now", Condition: Condition{Type: OnNone, Repeat: 1}}},
				Expression: "now"},
		}}}
		if s == "list" {
			return
		}
		checkRoundTrip(t, p)
	})
}

func BenchmarkParsePublished(b *testing.B) {
	var plans [][]byte
	for _, file := range files(b, sieveDir+"/actions/*.yaml", sieveDir+"/modes/*.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		plans = append(plans, data)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(plans[i%len(plans)], "f.yaml"); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "plans/s")
}
