package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/chaos/schema"
)

// Disrupt and EndDisruption are faults that last: the action disrupt creates a Disruption, a resource with controllers of
// its own, and endDisruption deletes it.
const (
	Disrupt       ActionType = "disrupt"
	EndDisruption ActionType = "endDisruption"
)

// DisruptFields are the fields of the action disrupt.
type DisruptFields struct {
	// Disruption is the spec of a Disruption, with its name, its namespace (default: that of the controller, or
	// "default"), and, in place of a selector, the controller whose pods are disrupted (default: the suite's only one).
	Disruption map[string]any `yaml:"disruption" called:"a disruption"`
	// AcceptPartial completes the action when some of the targets are disrupted.
	AcceptPartial bool `yaml:"acceptPartial"`
	// AcceptNoTargets completes the action although nothing is selected.
	AcceptNoTargets bool `yaml:"acceptNoTargets"`
}

// EndDisruptionFields are the fields of the action endDisruption.
type EndDisruptionFields struct {
	// Disruption is the name of the disruption of an earlier action.
	Disruption string `yaml:"disruption"`
}

// notInSpec are the fields of a plan's disruption that are not in the spec of the resource.
var notInSpec = []string{"name", "namespace", "controller"}

// Name of the disruption.
func (f *DisruptFields) Name() string { return f.text("name") }

// Namespace of the disruption; empty: the default.
func (f *DisruptFields) Namespace() string { return f.text("namespace") }

// Controller whose pods are disrupted; empty if the disruption has a selector, or for the suite's only controller.
func (f *DisruptFields) Controller() string { return f.text("controller") }

// Selects reports whether the disruption has a selector of its own.
func (f *DisruptFields) Selects() bool {
	return f.Disruption["selector"] != nil || f.Disruption["advancedSelector"] != nil
}

func (f *DisruptFields) text(field string) string {
	s, _ := f.Disruption[field].(string)
	return s
}

// Spec is the spec of the Disruption; without a selector if it is a controller's.
func (f *DisruptFields) Spec() map[string]any {
	spec := maps.Clone(f.Disruption)
	for _, name := range notInSpec {
		delete(spec, name)
	}
	return spec
}

// disruptionKinds returns the kinds of a disruption: the fields that have a mapping of their own.
func (f *DisruptFields) kinds() []string {
	var kinds []string
	for name, value := range f.Disruption {
		if _, ok := value.(map[string]any); ok && !slices.Contains([]string{"selector", "filter", "pulse", "triggers"}, name) {
			kinds = append(kinds, name)
		}
	}
	slices.Sort(kinds)
	return kinds
}

func disruptFields(a *Action) *DisruptFields {
	if f, ok := a.Own.(*DisruptFields); ok {
		return f
	}
	return &DisruptFields{}
}

func endDisruptionFields(a *Action) *EndDisruptionFields {
	if f, ok := a.Own.(*EndDisruptionFields); ok {
		return f
	}
	return &EndDisruptionFields{}
}

var disrupt = ActionKind{
	Type: Disrupt,
	Own:  func() any { return &DisruptFields{} },
	Check: func(c *ActionCheck) {
		f := disruptFields(c.Action)
		at := c.at.field("disruption")
		if f.Disruption == nil {
			c.Missing("disruption", "disrupt has no disruption: its name, and what it does, such as "+
				"{name: slow-api, apiFault: {verbs: [update], delay: 3s}}")
			return
		}
		if !dnsLabel(f.Name()) {
			at.field("name").errorf("the disruption has no name: lower-case letters, digits and -, at most 63")
		}
		for _, name := range notInSpec {
			if value, given := f.Disruption[name]; given && f.text(name) == "" {
				at.field(name).errorf("%s is %v; it is a text", name, value)
			}
		}
		for _, other := range c.checker.plan.Actions {
			if o, ok := other.Own.(*DisruptFields); ok && o != f && o.Name() == f.Name() {
				at.field("name").errorf("duplicate disruption %q", f.Name())
				break
			}
		}
		spec := f.Spec()
		switch {
		case f.Selects() && f.Controller() != "":
			at.field("controller").errorf("the disruption has both controller and a selector; it takes one")
		case !f.Selects():
			if f.Disruption["level"] == "node" {
				at.errorf("a disruption of nodes needs a selector")
				return
			}
			if c.Suite != nil {
				switch {
				case f.Controller() != "":
					c.checker.hooked(at.field("controller"), f.Controller(), "so it cannot be disrupted")
				case len(c.Suite.Controllers) != 1:
					at.errorf("the suite has %d controllers; say which is disrupted (controller: NAME), or give a selector",
						len(c.Suite.Controllers))
				}
			}
			spec["selector"] = map[string]any{"a": "controller"}
		}
		for _, m := range schema.Validate(spec) {
			place := at
			for _, step := range m.Path {
				if i, err := strconv.Atoi(step); err == nil {
					place = place.item(i)
				} else {
					place = place.field(step)
				}
			}
			place.errorf("%s", strings.Join(append([]string{"disruption"}, m.Path...), ".")+": "+m.Message)
		}
	},
	Explain: func(a *Action) string {
		f := disruptFields(a)
		whose := "the selected targets"
		if !f.Selects() {
			whose = "the pods of " + controllerName(f.Controller())
		}
		text := make([]string, 0, 2)
		for _, kind := range f.kinds() {
			text = append(text, kind+" "+compact(f.Disruption[kind]))
		}
		return fmt.Sprintf("begin the disruption %s of %s: %s", f.Name(), whose, strings.Join(text, ", "))
	},
	Object: func(a *Action) string { return disruptFields(a).Name() },
}

var endDisruption = ActionKind{
	Type: EndDisruption,
	Own:  func() any { return &EndDisruptionFields{} },
	Check: func(c *ActionCheck) {
		name := endDisruptionFields(c.Action).Disruption
		if name == "" {
			c.Missing("disruption", "endDisruption has no disruption: the name of one that an earlier action begins")
			return
		}
		var known []string
		for i := range c.checker.plan.Actions {
			a := &c.checker.plan.Actions[i]
			if a == c.Action {
				break
			}
			if f, ok := a.Own.(*DisruptFields); ok {
				known = append(known, f.Name())
			}
		}
		if !slices.Contains(known, name) {
			c.Errorf("disruption", "no earlier action begins a disruption %q%s", name, didYouMean(name, known))
		}
	},
	Explain: func(a *Action) string {
		return "end the disruption " + endDisruptionFields(a).Disruption
	},
	Object: func(a *Action) string { return endDisruptionFields(a).Disruption },
}

func dnsLabel(s string) bool {
	return len(s) > 0 && len(s) <= 63 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" &&
		s[0] != '-' && s[len(s)-1] != '-'
}
