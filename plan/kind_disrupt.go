package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/crd"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Disrupt and EndDisruption are faults that last: the action disrupt creates a Disruption, a resource with controllers
// of its own, and endDisruption deletes it.
const (
	Disrupt       ActionType = "disrupt"
	EndDisruption ActionType = "endDisruption"
)

// Disrupting has the fields of disrupt and endDisruption.
type Disrupting struct {
	Disruption      any  `yaml:"disruption"`      // disrupt: see Begins; endDisruption: a name
	AcceptPartial   bool `yaml:"acceptPartial"`   // disrupt: it is enough that some targets are disrupted
	AcceptNoTargets bool `yaml:"acceptNoTargets"` // disrupt: it need not have targets
}

// Disruption is what the action disrupt begins: the spec of a Disruption, with its name, its namespace (default: that
// of the controller, or "default"), and, instead of a selector, the controller whose pods are disrupted (default: the
// suite's only one).
type Disruption map[string]any

// notInSpec are the fields of a plan's disruption that are not in the spec of the resource.
var notInSpec = []string{"name", "namespace", "controller"}

// Name of the disruption.
func (d Disruption) Name() string { return d.text("name") }

// Namespace of the disruption; empty: the default.
func (d Disruption) Namespace() string { return d.text("namespace") }

// Controller whose pods are disrupted; empty if the disruption has a selector, or for the suite's only controller.
func (d Disruption) Controller() string { return d.text("controller") }

// Selects reports whether the disruption has a selector of its own.
func (d Disruption) Selects() bool {
	return d["selector"] != nil || d["advancedSelector"] != nil
}

func (d Disruption) text(field string) string {
	s, _ := d[field].(string)
	return s
}

// Spec is the spec of the Disruption; without a selector if it is a controller's.
func (d Disruption) Spec() map[string]any {
	spec := maps.Clone(d)
	for _, name := range notInSpec {
		delete(spec, name)
	}
	return spec
}

// kinds returns the kinds of a disruption: the fields that have a mapping of their own.
func (d Disruption) kinds() []string {
	var kinds []string
	for name, value := range d {
		others := []string{"selector", "filter", "pulse", "triggers"}
		if _, ok := value.(map[string]any); ok && !slices.Contains(others, name) {
			kinds = append(kinds, name)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Begins returns the disruption that an action disrupt begins; nil: none, or it is not a mapping.
func (a *Action) Begins() Disruption {
	if m, ok := a.Disruption.(map[string]any); ok && a.Type == Disrupt {
		return m
	}
	return nil
}

// Ends returns the name of the disruption that an action endDisruption ends.
func (a *Action) Ends() string {
	if name, ok := a.Disruption.(string); ok && a.Type == EndDisruption {
		return name
	}
	return ""
}

// disruptionName names the disruption that an action begins; empty: none.
func disruptionName(a *Action) string { return a.Begins().Name() }

var disrupt = ActionKind{
	Type:    Disrupt,
	Summary: "Begin a disruption, a fault that lasts.",
	Doc:     "begins a [disruption](disruptions.md), a fault that lasts, and waits until it is in effect",
	Fields:  []string{"cluster", "disruption", "acceptPartial", "acceptNoTargets"},
	Check: func(c *ActionCheck) {
		d, in := c.Action.Begins(), c.Action.Cluster
		if c.Suite != nil && in != "" {
			if home := c.Suite.homeOfDisrupted(d); home != "" && home != in {
				c.Errorf("cluster", "the controller that is disrupted runs in cluster %q, not in %q", home, in)
			}
		}
		at := c.at.Field("disruption")
		if d == nil {
			report := at.Missing
			if c.Action.Disruption != nil {
				report = at.Errorf
			}
			report("disrupt has no disruption: its name, and what it does, such as " +
				"{name: slow-api, apiFault: {verbs: [update], delay: 3s}}")
			return
		}
		if !dnsLabel(d.Name()) {
			at.Field("name").Errorf("the disruption has no name: lower-case letters, digits and -, at most 63")
		}
		for _, name := range notInSpec {
			if value, given := d[name]; given && d.text(name) == "" {
				at.Field(name).Errorf("%s is %v; it is a text", name, value)
			}
		}
		if slices.Contains(c.before(disruptionName), d.Name()) {
			at.Field("name").Errorf("duplicate disruption %q", d.Name())
		}
		c.checker.disruptable(at, d)
		spec := d.Spec()
		switch {
		case d.Selects() && d.Controller() != "":
			at.Field("controller").Errorf("the disruption has both controller and a selector; it takes one")
		case !d.Selects():
			if d["level"] == "node" {
				at.Errorf("a disruption of nodes needs a selector")
				return
			}
			if c.Suite != nil {
				switch {
				case d.Controller() != "":
					c.checker.hooked(at.Field("controller"), d.Controller(), "so it cannot be disrupted")
				case len(c.Suite.Controllers) != 1:
					at.Errorf("the suite has %d controllers; say which is disrupted (controller: NAME), or give a "+
						"selector", len(c.Suite.Controllers))
				}
			}
			spec["selector"] = map[string]any{"a": "controller"}
		}
		checkSpec(at, "disruption", spec, crd.Disruption())
	},
	Explain: func(a *Action) string {
		d := a.Begins()
		whose := "the selected targets"
		if !d.Selects() {
			whose = "the pods of " + controllerName(d.Controller())
		}
		text := make([]string, 0, 2)
		for _, kind := range d.kinds() {
			text = append(text, kind+" "+jsonvalue.Compact(d[kind]))
		}
		return fmt.Sprintf("begin the disruption %s of %s: %s", d.Name(), whose, strings.Join(text, ", "))
	},
	Object:  func(a *Action) string { return a.Begins().Name() },
	Needs:   []Capability{CarryOutDisruptions},
	Effects: func(a *Action) []Effect { return []Effect{&Begin{a.Begins().Name()}} },
}

// disruptable reports the kinds of a disruption that the suite's type of cluster cannot carry out.
func (c *checker) disruptable(at *yamlfile.Place, d Disruption) {
	if c.suite == nil {
		return
	}
	kind, known := LookupClusterKind(c.suite.Cluster.Type)
	if !known || len(kind.Disruptions) == 0 {
		return
	}
	for _, name := range d.kinds() {
		if !slices.Contains(kind.Disruptions, name) {
			at.Field(name).Errorf("a cluster of type %q cannot carry out %s (it can: %s)", kind.Type, name,
				strings.Join(kind.Disruptions, ", "))
		}
	}
}

var endDisruption = ActionKind{
	Type:    EndDisruption,
	Summary: "End a disruption.",
	Doc:     "ends it, and waits until nothing of it is left",
	Fields:  []string{"disruption"},
	Check: func(c *ActionCheck) {
		name := c.Action.Ends()
		if name == "" {
			c.Errorf("disruption", "endDisruption has no disruption: the name of one that an earlier action begins")
			return
		}
		if known := c.before(disruptionName); !slices.Contains(known, name) {
			c.Errorf("disruption", "no earlier action begins a disruption %q%s", name, wording.Suggest(name, known))
		}
	},
	Explain: func(a *Action) string {
		return "end the disruption " + a.Ends()
	},
	Object:  func(a *Action) string { return a.Ends() },
	Needs:   []Capability{CarryOutDisruptions},
	Effects: func(a *Action) []Effect { return []Effect{&End{a.Ends()}} },
}

func dnsLabel(s string) bool {
	return len(s) > 0 && len(s) <= 63 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" &&
		s[0] != '-' && s[len(s)-1] != '-'
}
