package plan

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Complete fills in what the plan leaves out: defaults, and the trigger graphs of valid expressions. With a suite it
// also fills in what depends on the suite, such as the only workload and the only controller. Plans that were read from
// a file lack only the latter. Plans that were built in Go must be completed before they run.
func (p *Plan) Complete(s *Suite) {
	whole := p.whole()
	for i := range p.Actions {
		p.Actions[i].detach()
	}
	setDefaults(p, whole)
	if name := whole.Field("testName"); p.TestName == "" && p.File != "" && (!name.Given() || name.Empty()) {
		p.TestName = nameOfFile(p.File)
	}
	only := ""
	if s != nil {
		if p.Workload == "" && len(p.Steps) == 0 {
			// A plan and the workload that it disturbs usually share a name.
			if _, ok := s.Workloads[p.TestName]; ok {
				p.Workload = p.TestName
			} else if len(s.Workloads) == 1 {
				p.Workload = sortedKeys(s.Workloads)[0]
			}
		}
		if len(s.Controllers) == 1 {
			only = s.Controllers[0].Name
		}
		if first := s.FirstCluster(); first != "" {
			completeSteps(p.Steps, first)
			completeInvariants(p.Invariants, first)
		}
	}
	actions := whole.Field("actions")
	for i := range p.Actions {
		a := &p.Actions[i]
		if a.Target == "" && a.kind().Target == TargetController {
			a.Target = only
		}
		if s != nil {
			a.completeCluster(s)
		}
		trigger := actions.Item(i).Field("trigger")
		for j := range a.Trigger.Definitions {
			d := &a.Trigger.Definitions[j]
			d.complete(s, only, trigger.Field("definitions").Item(j))
		}
		a.Trigger.complete(trigger.Field("expression").Given())
	}
}

// detach gives the action a copy of its own fields: actions are copied as values, which share them. An action that was
// built in Go without them gets the defaults.
func (a *Action) detach() {
	if a.Own == nil {
		a.Own = OwnFields(a.Type)
	} else {
		own := reflect.New(reflect.TypeOf(a.Own).Elem())
		own.Elem().Set(reflect.ValueOf(a.Own).Elem())
		a.Own = own.Interface()
	}
}

func nameOfFile(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

func (d *Definition) complete(s *Suite, only string, at *yamlfile.Place) {
	c := &d.Condition
	if c.Type == "" && !at.Field("condition").Field("triggerType").Given() {
		switch d.Observe.Timing.point() {
		case "Reconcile":
			c.Type = OnReconcile
		case "AnnotatedCall":
			c.Type = OnAnnotatedCall
		}
	}
	if c.Type == OnAnnotatedCall && s != nil {
		if call := s.annotatedCall(c.Call); call != nil {
			c.Call = call.Name // the plan may name it by its symbol
		}
	}
	o := &d.Observe
	if o.ObserveBy == "" && !o.Timing.ofAPIServer() && slices.Contains(points[c.Type], o.Timing.point()) {
		o.ObserveBy = only
	}
	if s != nil {
		d.completeCluster(s)
	}
}

// annotatedCall returns the call with that name or symbol, or nil.
func (s *Suite) annotatedCall(name string) *AnnotatedCall {
	for _, controller := range s.Controllers {
		for i, call := range controller.AnnotatedCalls {
			if name == call.Name || name == call.Symbol() {
				return &controller.AnnotatedCalls[i]
			}
		}
	}
	return nil
}

func (t *Trigger) complete(given bool) {
	if t.Expression == "" && !given && len(t.Definitions) == 1 && expr.ValidName(t.Definitions[0].Name) {
		t.Expression = t.Definitions[0].Name
	}
	t.Graph = nil
	if t.Expression == "" {
		return
	}
	if e, err := expr.Parse(t.Expression); err == nil && len(t.unknown(e)) == 0 {
		t.Expression, t.Graph = e.String(), e.Graph()
	}
}

// unknown returns the names in the expression that are not defined.
func (t *Trigger) unknown(e *expr.Expr) []expr.Name {
	return slices.DeleteFunc(e.Names(), func(n expr.Name) bool {
		return slices.ContainsFunc(t.Definitions, func(d Definition) bool { return d.Name == n.Name })
	})
}

// complete fills in what the suite leaves out.
func (s *Suite) complete() {
	whole := s.source.Whole()
	if kind, known := LookupClusterKind(s.Cluster.Type); known && s.Timeouts.Ready == 0 &&
		!whole.Field("timeouts").Field("ready").Given() {
		s.Timeouts.Ready = kind.Ready
	}
	setDefaults(s, whole)
	s.Cluster.completeCluster()
	s.completeClusters(whole)
	for i := range s.Controllers {
		for j := range s.Controllers[i].AnnotatedCalls {
			if call := &s.Controllers[i].AnnotatedCalls[j]; call.Name == "" {
				call.Name = call.Symbol()
			}
		}
	}
	for name, w := range s.Workloads {
		at := whole.Field("workloads").Field(name)
		unless := func(at *yamlfile.Place, timeout *time.Duration, fallback time.Duration) {
			if p := at.Field("timeout"); *timeout == 0 && (!p.Given() || p.Failed()) {
				*timeout = fallback
			}
		}
		unless(at, &w.Timeout, s.Timeouts.Workload)
		for i, step := range w.Steps {
			at := at.Field("steps").Item(i)
			if step.Wait != nil {
				unless(at.Field("wait"), &step.Wait.Timeout, s.Timeouts.Step)
			}
			if step.Exec != nil {
				unless(at.Field("exec"), &step.Exec.Timeout, s.Timeouts.Step)
			}
		}
		s.Workloads[name] = w
	}
}
