package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestWhatReproRuns(t *testing.T) {
	const suite = "controllers: [{name: db, binary: db}]\nworkloads: {create: [{sleep: 1s}]}\n" +
		"variants: {fixed: {controllers: {db: {args: [--fixed]}}}}\n"
	now := filepath.Join(t.TempDir(), "trommel.yaml")
	run := func(change func(*record.Run)) *record.Run {
		r := &record.Run{
			Dir:   t.TempDir(),
			Plan:  []byte("testName: a\nworkload: create\nvariant: fixed\nactions: []\n"),
			Suite: []byte(suite),
			Meta: record.Meta{Plan: "a", Suite: now, Variant: "fixed", Trommel: buildinfo.Version(),
				Kubernetes: instrumentation.KubernetesVersion},
		}
		change(r)
		if err := os.WriteFile(filepath.Join(r.Dir, record.PlanFile), r.Plan, 0o600); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, tt := range []struct {
		name    string
		now     string // the suite of today
		change  func(*record.Run)
		version string // of Kubernetes, that the suite then asks for
		told    string
		wrong   string
	}{
		{"nothing has changed", suite, func(*record.Run) {}, "", "", ""},
		{"the suite has changed", "nonsense: 1", func(*record.Run) {}, "", "has changed since the run", ""},
		{"another version of Kubernetes", suite,
			func(r *record.Run) { r.Meta.Kubernetes = "v1.35.8" }, "v1.35.8", "", ""},
		{"a version of Kubernetes that is not known any more", suite,
			func(r *record.Run) { r.Meta.Kubernetes = "v1.20.0" }, "", "", "unknown Kubernetes version v1.20.0"},
		{"another version of Trommel", suite, func(r *record.Run) { r.Meta.Trommel = "v0.0.1" }, "",
			"made by Trommel v0.0.1", ""},
		{"a variant that is gone", suite, func(r *record.Run) { r.Meta.Variant = "none" }, "", "", "none"},
		{"no plan", suite, func(r *record.Run) { r.Plan = nil }, "", "", "the run was killed before"},
	} {
		if err := os.WriteFile(now, []byte(tt.now), 0o600); err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		l, err := recorded(output.Streams{Err: &told}, run(tt.change))
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if l.variant != "fixed" || l.suite.File != now || l.suite.Cluster.KubernetesVersion != tt.version ||
			len(l.suite.Controllers) != 1 {
			t.Errorf("%s: %+v with %+v", tt.name, l, l.suite)
		}
		if (told.String() == "") != (tt.told == "") || !strings.Contains(told.String(), tt.told) {
			t.Errorf("%s: %q, want %q", tt.name, told.String(), tt.told)
		}
	}
}

// A suite that was built in a Go test is in no file; its record has it.
func TestReproOfASuiteBuiltInGo(t *testing.T) {
	r := &record.Run{
		Dir: t.TempDir(), Plan: []byte("testName: a\nworkload: w\nactions: []\n"),
		Suite: []byte("controllers: [{name: db, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\n"),
		Meta:  record.Meta{Suite: filepath.Join(t.TempDir(), "suite-of-TestX"), Trommel: buildinfo.Version()},
	}
	if err := os.WriteFile(filepath.Join(r.Dir, record.PlanFile), r.Plan, 0o600); err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	l, err := recorded(output.Streams{Err: &told}, r)
	if err != nil || l.suite.File != r.Meta.Suite || !strings.Contains(told.String(), "built in Go") {
		t.Errorf("%+v, %v, told %q", l, err, told.String())
	}
	r.Meta.Suite = filepath.Join(r.Meta.Suite, "gone", "trommel.yaml")
	_, err = recorded(output.Streams{Err: &told}, r)
	if err == nil || !strings.Contains(err.Error(), "whose other files") {
		t.Errorf("a suite whose directory is gone: %v", err)
	}
}

func TestReproComparesWithBaselinesIfTheRunDid(t *testing.T) {
	l := &loaded{suite: &plan.Suite{File: "db/trommel.yaml"}, variant: "fixed"}
	bug := func(judge string) record.Finding {
		return record.Finding{Severity: record.SeverityBug, Judge: judge}
	}
	usual := filepath.Join("trommel-runs", "baselines", "db-fixed")
	for _, tt := range []struct {
		given    string
		findings []record.Finding
		want     string
	}{
		{"", nil, ""},
		{"", []record.Finding{bug(record.JudgeInvariant), bug(record.JudgePanic)}, ""},
		{"", []record.Finding{bug(record.JudgeFinalizer)}, ""},
		{"", []record.Finding{bug(record.JudgeInvariant), bug(record.JudgeBaseline)}, usual},
		{"", []record.Finding{{Severity: record.SeverityNote, Judge: record.JudgeErrors}}, ""},
		{"other", nil, "other"},
	} {
		o := &reproOptions{baseline: tt.given}
		if got, err := o.baselinesOf(&record.Run{Findings: tt.findings}, l); err != nil || got != tt.want {
			t.Errorf("%v: %q, %v; want %q", tt.findings, got, err, tt.want)
		}
	}
}
