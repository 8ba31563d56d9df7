package plan

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/sieve"
)

// Load reads a plan from a file. See [Parse].
func Load(path string) (*Plan, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(data, path)
}

// LoadWith reads a plan and checks it against its suite, as [Load] and [Plan.Validate] do one after the other, but tells at once
// what is wrong for either. A nil suite is none.
func LoadWith(path string, s *Suite) (*Plan, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parse(data, path, s)
}

// readFile reads a file up to the limit, with an error that is fit to be shown.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, Errors{{File: path, Message: "no such file"}}
		}
		return nil, Errors{{File: path, Message: reason(err)}}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, Errors{{File: path, Message: reason(err)}}
	}
	return data, nil
}

// reason is an error of the file system without the path, which the message has already.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Op + ": " + pathErr.Err.Error()
	}
	return err.Error()
}

// Parse reads a plan; file is its name in messages, and its folder is where the files that it names are looked for.
// Besides the format of this package it reads the two formats of Sieve's published plans. The plan is complete with
// its defaults and valid as far as that can be told without a suite. The error is Errors: every mistake of the file.
func Parse(data []byte, file string) (*Plan, error) { return parse(data, file, nil) }

func parse(data []byte, file string, s *Suite) (*Plan, error) {
	d := &decoder{file: file}
	root := d.parse(data, "plan")
	if root == nil {
		return nil, d.errs.err()
	}
	if format := sieve.Detect(root); format != sieve.None {
		converted, problems := sieve.Convert(root, format)
		for _, p := range problems {
			d.errs = append(d.errs, &Error{File: file, Line: p.Line, Col: p.Col, Message: p.Message})
		}
		if converted == nil {
			return nil, d.errs.err()
		}
		root = converted
	}
	p := d.plan(root)
	if p == nil {
		return nil, d.errs.err()
	}
	d.errs = append(d.errs, p.check(s)...)
	if err := d.errs.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// FileKind is [Kind] of a file. The error is about a file that cannot be read.
func FileKind(path string) (string, error) {
	data, err := readFile(path)
	if err != nil {
		return "", err
	}
	return Kind(data), nil
}

// Kind tells what a YAML file holds, by a look at its fields: TestPlan (in any format that [Parse] reads), Suite, or
// nothing of ours, which is empty. It says nothing about whether the file is valid.
func Kind(data []byte) string {
	d := &decoder{}
	root := d.parse(data, "")
	if root == nil || deref(root).Kind != yaml.MappingNode {
		return ""
	}
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		fields[root.Content[i].Value] = deref(root.Content[i+1])
	}
	if kind := fields["kind"]; kind != nil {
		if kind.Value == "TestPlan" || kind.Value == "Suite" {
			return kind.Value
		}
		return ""
	}
	switch {
	case fields["actions"] != nil, sieve.Detect(root) != sieve.None:
		return "TestPlan"
	case fields["controllers"] != nil && (fields["workloads"] != nil || fields["cluster"] != nil):
		return "Suite"
	}
	return ""
}

// FindSuite returns the suite of a plan file: what its suite field names, otherwise the nearest trommel.yaml in its
// folder or above. The plan need not be valid.
func FindSuite(planFile string) (string, error) {
	if data, err := readFile(planFile); err == nil {
		if n := suiteField(data); n != nil {
			path := Beside(planFile, n.Value)
			if info, err := os.Stat(path); err != nil {
				return "", Errors{{File: planFile, Line: n.Line, Col: n.Column, Message: fmt.Sprintf("suite %q: no such file", n.Value)}}
			} else if info.IsDir() {
				path = filepath.Join(path, SuiteFile)
			}
			return path, nil
		}
	}
	dir, err := filepath.Abs(filepath.Dir(planFile))
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		path := filepath.Join(at, SuiteFile)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
		if at == filepath.Dir(at) {
			return "", Errors{{File: planFile, Message: fmt.Sprintf("there is no suite: no %s in %s or above", SuiteFile, dir)}}
		}
	}
}

// Beside returns the path of a file that a plan or suite names: relative to the folder of file, which is the plan or suite.
func Beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// suiteField returns what a plan's suite field has, or nil.
func suiteField(data []byte) *yaml.Node {
	root := (&decoder{}).parse(data, "plan")
	if root == nil || root.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if n := deref(root.Content[i+1]); root.Content[i].Value == "suite" && n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value != "" {
			return n
		}
	}
	return nil
}

// The fields of a plan file. The numbers are the places in the schemas' lists.
const (
	planAPIVersion = iota
	planKind
	planTestName
	planDescription
	planSuite
	planWorkload
	planVariant
	planActions
)

const (
	actionType = iota
	actionTarget
	actionTrigger
	actionWaitBefore
	actionWaitAfter
	actionAsync
	actionPauseAt
	actionPauseScope
	actionAvoidOngoingRead
	actionReconnectAPIServer
	actionReconnectBy
	actionResourceKey
	actionManifest
	actionManifestFile
	actionPatchType
	actionPatch
	actionSubresource
)

const (
	triggerDefinitions = iota
	triggerExpression
)

const (
	definitionName = iota
	definitionCondition
	definitionObserve
)

const (
	conditionType = iota
	conditionResourceKey
	conditionPrevState
	conditionCurState
	conditionWhere
	conditionRepeat
	conditionTimeout
	conditionCall
)

const (
	observeTiming = iota
	observeObserveBy
	observeReconciler
)

var (
	planSchema = &schema{
		what:   "a plan",
		fields: []string{"apiVersion", "kind", "testName", "description", "suite", "workload", "variant", "actions"},
	}
	actionSchema = &schema{
		what: "an action",
		fields: []string{
			"actionType", "actionTarget", "trigger", "waitBefore", "waitAfter", "async", "pauseAt", "pauseScope", "avoidOngoingRead",
			"reconnectAPIServer", "reconnectBy", "resourceKey", "manifest", "manifestFile", "patchType", "patch", "subresource",
		},
		hints: map[string]string{
			"controllerLabel": "the target of an action is its actionTarget", "apiServerName": "the target of an action is its actionTarget",
		},
	}
	triggerSchema = &schema{
		what:   "a trigger",
		fields: []string{"definitions", "expression"},
	}
	definitionSchema = &schema{
		what:   "a trigger definition",
		fields: []string{"triggerName", "condition", "observationPoint"},
		// The words of the format as it was first proposed.
		words: map[string]string{"conditionName": "triggerName", "observePoint": "observationPoint"},
	}
	conditionSchema = &schema{
		what:   "a condition",
		fields: []string{"triggerType", "resourceKey", "prevState", "curState", "where", "repeat", "timeout", "call"},
		hints: map[string]string{
			"conditionType": "here it is triggerType", "occurrence": "here it is repeat", "prevStateDiff": "here it is prevState",
			"curStateDiff": "here it is curState", "timeoutValue": "here it is timeout, with its unit",
		},
	}
	observeSchema = &schema{
		what:   "an observation point",
		fields: []string{"timing", "observeBy", "reconciler"},
		hints:  map[string]string{"when": "here it is timing", "by": "here it is observeBy"},
	}
)

// source is where a plan's values stand in its file.
type source struct {
	text    []byte
	root    *yaml.Node
	fields  []*yaml.Node
	actions []actionSource
}

type actionSource struct {
	node          *yaml.Node
	fields        []*yaml.Node
	triggerFields []*yaml.Node
	definitions   []definitionSource
}

type definitionSource struct {
	node      *yaml.Node
	fields    []*yaml.Node
	condition []*yaml.Node
	observe   []*yaml.Node
}

var actionTypes = []ActionType{
	RestartController, KillController, StartController, PauseController, ResumeController, ReconnectController,
	PauseAPIServer, ResumeAPIServer, KillAPIServer, StartAPIServer, ApplyObject, PatchObject, DeleteObject,
}

var triggerTypes = []TriggerType{
	OnObjectCreation, OnObjectUpdate, OnObjectDeletion, OnAnyFieldModified, OnAllFieldsModified,
	OnAnnotatedCall, OnReconcile, OnTimeout, OnNone,
}

var timings = []Timing{
	BeforeAPIServerRecv, AfterAPIServerRecv, BeforeControllerRecv, AfterControllerRecv, BeforeControllerRead, AfterControllerRead,
	BeforeControllerWrite, AfterControllerWrite, BeforeReconcile, AfterReconcile, BeforeAnnotatedCall, AfterAnnotatedCall,
}

var (
	reconnects = []Reconnect{ReconnectRestart, ReconnectCut}
	patchTypes = []string{"merge", "json", "strategic"}
)

func (d *decoder) plan(n *yaml.Node) *Plan {
	f := d.mapping(n, planSchema)
	if f == nil {
		return nil
	}
	p := &Plan{
		APIVersion:  d.apiVersion(f[planAPIVersion]),
		Kind:        d.kind(f[planKind], "TestPlan"),
		TestName:    d.text(f[planTestName], "testName"),
		Description: d.text(f[planDescription], "description"),
		Suite:       d.text(f[planSuite], "suite"),
		Workload:    d.text(f[planWorkload], "workload"),
		Variant:     d.text(f[planVariant], "variant"),
		File:        d.file,
		source:      &source{text: d.src, root: n, fields: f},
	}
	items := d.list(f[planActions], "actions")
	p.Actions, p.source.actions = slices.Grow(p.Actions, len(items)), slices.Grow(p.source.actions, len(items))
	for _, item := range items {
		a, s := d.action(item)
		p.Actions = append(p.Actions, a)
		p.source.actions = append(p.source.actions, s)
	}
	return p
}

func (d *decoder) apiVersion(n *yaml.Node) string {
	if v := d.text(n, "apiVersion"); v != "" && v != APIVersion {
		d.errorf(n, "unknown apiVersion %q; this Trommel reads %s", v, APIVersion)
	}
	return APIVersion
}

func (d *decoder) kind(n *yaml.Node, want string) string {
	if v := d.text(n, "kind"); v != "" && v != want {
		d.errorf(n, "kind is %s here, not %q", want, v)
	}
	return want
}

func (d *decoder) action(n *yaml.Node) (Action, actionSource) {
	s := actionSource{node: n}
	var a Action
	if s.fields = d.mapping(n, actionSchema); s.fields == nil {
		return a, s
	}
	f := s.fields
	a.Type = word(d, f[actionType], "actionType", actionTypes)
	a.Target = d.text(f[actionTarget], "actionTarget")
	a.WaitBefore = d.duration(f[actionWaitBefore], "waitBefore", 0)
	a.WaitAfter = d.duration(f[actionWaitAfter], "waitAfter", 0)
	a.Async = d.boolean(f[actionAsync], "async")
	a.PauseAt = word(d, f[actionPauseAt], "pauseAt", timings)
	a.PauseScope = d.text(f[actionPauseScope], "pauseScope")
	a.AvoidOngoingRead = d.boolean(f[actionAvoidOngoingRead], "avoidOngoingRead")
	a.ReconnectAPIServer = d.text(f[actionReconnectAPIServer], "reconnectAPIServer")
	a.ReconnectBy = word(d, f[actionReconnectBy], "reconnectBy", reconnects)
	a.ResourceKey = d.resourceKey(f[actionResourceKey], "resourceKey")
	if m := f[actionManifest]; m != nil {
		a.Manifest = d.object(m, "manifest")
	}
	a.ManifestFile = d.text(f[actionManifestFile], "manifestFile")
	a.PatchType = word(d, f[actionPatchType], "patchType", patchTypes)
	if patch := f[actionPatch]; patch != nil {
		a.Patch = d.value(patch)
	}
	a.Subresource = d.text(f[actionSubresource], "subresource")
	if t := f[actionTrigger]; t != nil {
		if s.triggerFields = d.mapping(t, triggerSchema); s.triggerFields != nil {
			a.Trigger.Expression = d.text(s.triggerFields[triggerExpression], "expression")
			items := d.list(s.triggerFields[triggerDefinitions], "definitions")
			a.Trigger.Definitions, s.definitions = slices.Grow(a.Trigger.Definitions, len(items)), slices.Grow(s.definitions, len(items))
			for _, item := range items {
				def, ds := d.definition(item)
				a.Trigger.Definitions = append(a.Trigger.Definitions, def)
				s.definitions = append(s.definitions, ds)
			}
		}
	}
	return a, s
}

// object reads a mapping, such as a Kubernetes object.
func (d *decoder) object(n *yaml.Node, what string) map[string]any {
	m, ok := d.value(n).(map[string]any)
	if !ok {
		d.errorf(n, "%s is a mapping, not %s", what, kindOf(deref(n)))
	}
	return m
}

func (d *decoder) definition(n *yaml.Node) (Definition, definitionSource) {
	s := definitionSource{node: n}
	var def Definition
	if s.fields = d.mapping(n, definitionSchema); s.fields == nil {
		return def, s
	}
	def.Name = d.text(s.fields[definitionName], "triggerName")
	if c := s.fields[definitionCondition]; c != nil {
		if s.condition = d.mapping(c, conditionSchema); s.condition != nil {
			f := s.condition
			def.Condition = Condition{
				Type:        word(d, f[conditionType], "triggerType", triggerTypes),
				ResourceKey: d.resourceKey(f[conditionResourceKey], "resourceKey"),
				PrevState:   d.state(f[conditionPrevState], "prevState"),
				CurState:    d.state(f[conditionCurState], "curState"),
				Where:       d.text(f[conditionWhere], "where"),
				Repeat:      d.integer(f[conditionRepeat], "repeat", 1),
				Timeout:     d.duration(f[conditionTimeout], "timeout", 0),
				Call:        d.text(f[conditionCall], "call"),
			}
			if def.Condition.Repeat < 1 {
				d.errorf(f[conditionRepeat], "repeat is %d; the first match is 1", def.Condition.Repeat)
				def.Condition.Repeat = 1
			}
		}
	}
	if o := s.fields[definitionObserve]; o != nil {
		if s.observe = d.mapping(o, observeSchema); s.observe != nil {
			f := s.observe
			def.Observe = ObservationPoint{
				Timing:     word(d, f[observeTiming], "timing", timings),
				ObserveBy:  d.text(f[observeObserveBy], "observeBy"),
				Reconciler: d.text(f[observeReconciler], "reconciler"),
			}
		}
	}
	return def, s
}

// state reads prevState or curState: a mapping, or the same as JSON in text.
func (d *decoder) state(n *yaml.Node, what string) any {
	if n == nil {
		return nil
	}
	r := deref(n)
	if r.Kind == yaml.ScalarNode && strings.HasPrefix(strings.TrimSpace(r.Value), "{") {
		v, err := decodeJSON([]byte(r.Value))
		if err != nil {
			d.errorf(n, "%s is no JSON: %v; write it as YAML", what, err)
			return nil
		}
		if deeper(v, maxDepth/2) {
			d.errorf(n, "%s is nested deeper than %d", what, maxDepth/2)
			return nil
		}
		return d.checkWords(n, what, v)
	}
	if r.Kind != yaml.MappingNode {
		d.errorf(n, "%s is a mapping, a piece of the object, not %s", what, kindOf(r))
		return nil
	}
	return d.checkWords(n, what, d.value(n))
}

// deeper reports whether a value is nested deeper than that.
func deeper(v any, than int) bool {
	if than < 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		for _, w := range v {
			if deeper(w, than-1) {
				return true
			}
		}
	case []any:
		for _, w := range v {
			if deeper(w, than-1) {
				return true
			}
		}
	}
	return false
}

// checkWords finds misspelled $present and $absent.
func (d *decoder) checkWords(n *yaml.Node, what string, v any) any {
	var bad string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, w := range v {
				walk(w)
			}
		case []any:
			for _, w := range v {
				walk(w)
			}
		case string:
			if len(v) > 3 && v[0] == '$' && v != Present && v != Absent && closest(v, []string{Present, Absent}) != "" {
				bad = v
			}
		}
	}
	if walk(v); bad != "" {
		d.errorf(d.find(n, bad), "unknown word %q in %s%s", bad, what, didYouMean(bad, []string{Present, Absent}))
	}
	return v
}

// find returns the scalar with the value below n, or n.
func (d *decoder) find(n *yaml.Node, value string) *yaml.Node {
	r := deref(n)
	for i, c := range r.Content {
		if r.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		if c.Kind == yaml.ScalarNode && c.Value == value {
			return c
		}
		if found := d.find(c, value); found != c {
			return found
		}
	}
	return n
}
