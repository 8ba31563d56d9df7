package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/crd"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// CycleNodes and EndCycle replace nodes while a plan goes on: the action cycleNodes creates a CycleNodeRequest, a
// resource with controllers of its own, and endCycle deletes it.
const (
	CycleNodes ActionType = "cycleNodes"
	EndCycle   ActionType = "endCycle"
)

// Cycling has the fields of cycleNodes and endCycle.
type Cycling struct {
	Cycle         any        `yaml:"cycle"`         // cycleNodes: see Cycles; endCycle: a name
	WaitFor       CyclePhase `yaml:"waitFor"`       // cycleNodes; empty: until the request is accepted
	AcceptFailure bool       `yaml:"acceptFailure"` // cycleNodes: the cycle may fail
}

// CyclePhase is a phase of a CycleNodeRequest.
type CyclePhase string

// The phases for which an action can wait.
const (
	CyclePending            CyclePhase = "Pending"
	CycleInitialised        CyclePhase = "Initialised"
	CycleScalingUp          CyclePhase = "ScalingUp"
	CycleCordoningNode      CyclePhase = "CordoningNode"
	CycleWaitingTermination CyclePhase = "WaitingTermination"
	CycleSuccessful         CyclePhase = "Successful"
	CycleHealing            CyclePhase = "Healing"
	CycleFailed             CyclePhase = "Failed"
)

// CyclePhases are all phases, in their order.
var CyclePhases = []CyclePhase{
	CyclePending, CycleInitialised, CycleScalingUp, CycleCordoningNode, CycleWaitingTermination, CycleSuccessful,
	CycleHealing, CycleFailed,
}

// maxCycleName is the longest name of a CycleNodeRequest: names of other objects begin with it.
const maxCycleName = 52

// maxGroupName is the longest name of a SimulatedNodeGroup: names of nodes begin with it.
const maxGroupName = 40

// labelNodeGroup is the label that nodes of a simulated group have, with the group's name.
const labelNodeGroup = "simulated.nodes.trommel.dev/group"

// Cycle is what the action cycleNodes begins: the spec of a CycleNodeRequest, with its name, its namespace (default:
// "default"), and, if there is no such node group yet, the spec of a simulated one.
type Cycle map[string]any

// Name of the request.
func (c Cycle) Name() string {
	name, _ := c["name"].(string)
	return name
}

// Namespace of the request.
func (c Cycle) Namespace() string {
	if namespace, _ := c["namespace"].(string); namespace != "" {
		return namespace
	}
	return "default"
}

// Key is the resource key of the request.
func (c Cycle) Key() ResourceKey {
	return ResourceKey{Type: "cyclenoderequest", Group: "nodes.trommel.dev", Namespace: c.Namespace(), Name: c.Name()}
}

// Group is the name of the node group.
func (c Cycle) Group() string {
	if name, _ := c["nodeGroupName"].(string); name != "" {
		return name
	}
	if c.SimulatedGroup() != nil {
		return c.Name()
	}
	return ""
}

// SimulatedGroup is the spec of the simulated node group that the plan brings along; nil: none.
func (c Cycle) SimulatedGroup() map[string]any {
	group, _ := c["simulatedGroup"].(map[string]any)
	return group
}

// Spec is the spec of the CycleNodeRequest. A cycle with a simulated group selects all its nodes, unless it says
// otherwise.
func (c Cycle) Spec() map[string]any {
	spec := maps.Clone(c)
	for _, name := range []string{"name", "namespace", "simulatedGroup"} {
		delete(spec, name)
	}
	if c.SimulatedGroup() == nil {
		return spec
	}
	if spec["nodeGroupName"] == nil {
		spec["nodeGroupName"] = c.Group()
	}
	if spec["selector"] == nil {
		spec["selector"] = map[string]any{"matchLabels": map[string]any{labelNodeGroup: c.Group()}}
	}
	return spec
}

// Cycles returns the cycle that an action cycleNodes begins; nil: none, or it is not a mapping.
func (a *Action) Cycles() Cycle {
	if m, ok := a.Cycle.(map[string]any); ok && a.Type == CycleNodes {
		return m
	}
	return nil
}

// EndsCycle returns the name of the cycle that an action endCycle ends.
func (a *Action) EndsCycle() string {
	if name, ok := a.Cycle.(string); ok && a.Type == EndCycle {
		return name
	}
	return ""
}

// cycleName names the cycle that an action begins; empty: none.
func cycleName(a *Action) string { return a.Cycles().Name() }

var cycleNodes = ActionKind{
	Type:    CycleNodes,
	Summary: "Begin to replace the nodes of a group.",
	Doc: "begins to [replace the nodes](node-cycling.md) of a group, and waits until the request is " +
		"accepted or in the phase `waitFor`",
	Fields: []string{"cluster", "cycle", "waitFor", "acceptFailure"},
	Check: func(c *ActionCheck) {
		if in := c.Action.Cluster; c.Suite != nil && c.Suite.SmallCluster(in) {
			c.Errorf("actionType", "the cluster %s has nodes: 0 and no controller of the suite, so that nothing "+
				"simulates nodes there; give it nodes", in)
		}
		cycle := c.Action.Cycles()
		at := c.at.Field("cycle")
		if cycle == nil {
			report := at.Missing
			if c.Action.Cycle != nil {
				report = at.Errorf
			}
			report("cycleNodes has no cycle: its name, and which nodes are replaced, such as " +
				"{name: roll, simulatedGroup: {desiredCapacity: 3}}")
			return
		}
		if !dnsLabel(cycle.Name()) || len(cycle.Name()) > maxCycleName {
			at.Field("name").Errorf("the cycle has no name: lower-case letters, digits and -, at most %d", maxCycleName)
		} else if slices.Contains(c.before(cycleName), cycle.Name()) {
			at.Field("name").Errorf("duplicate cycle %q", cycle.Name())
		}
		if namespace, given := cycle["namespace"]; given && cycle.Namespace() != namespace {
			at.Field("namespace").Errorf("namespace is %v; it is a text", namespace)
		}
		switch phase := c.Action.WaitFor; {
		case phase != "" && !slices.Contains(CyclePhases, phase):
			c.Errorf("waitFor", "unknown waitFor %q%s", phase, wording.Suggest(string(phase), stringsOf(CyclePhases)))
		case !c.Action.AcceptFailure && (phase == CycleHealing || phase == CycleFailed):
			c.Errorf("waitFor", "a cycle that is to fail needs acceptFailure: true")
		}
		group, given := cycle["simulatedGroup"]
		switch {
		case given && cycle.SimulatedGroup() == nil:
			at.Field("simulatedGroup").Errorf("simulatedGroup is %v; it is the spec of a SimulatedNodeGroup", group)
			return
		case given:
			if group := cycle.Group(); !dnsLabel(group) || len(group) > maxGroupName {
				at.Field("nodeGroupName").Errorf("the simulated group %q needs a name of lower-case letters, digits "+
					"and -, at most %d (nodeGroupName; default: the cycle's name)", group, maxGroupName)
			}
			checkSpec(at.Field("simulatedGroup"), "cycle.simulatedGroup", cycle.SimulatedGroup(), crd.SimulatedGroup())
		}
		checkSpec(at, "cycle", cycle.Spec(), crd.CycleRequest())
	},
	Explain: func(a *Action) string {
		c := a.Cycles()
		text := fmt.Sprintf("replace the nodes of the group %s", c.Group())
		for _, name := range []string{"cycleSettings", "cycleNodeSettings"} {
			if settings, ok := c[name].(map[string]any); ok {
				text += ", " + jsonvalue.Compact(settings)
			}
		}
		text += fmt.Sprintf(" (cycle %s)", c.Name())
		if a.WaitFor != "" {
			text += ", and wait until it is " + string(a.WaitFor)
		}
		return text
	},
	Object: func(a *Action) string { return a.Cycles().Name() },
	// It evicts pods and deletes nodes, as another client would.
	Needs:   []Capability{SimulateNodes},
	Effects: func(*Action) []Effect { return []Effect{&Write{}} },
}

var endCycle = ActionKind{
	Type:    EndCycle,
	Summary: "End a cycle of nodes: what is not drained yet stays.",
	Doc:     "ends it, and waits until it is gone",
	Fields:  []string{"cycle"},
	Check: func(c *ActionCheck) {
		name := c.Action.EndsCycle()
		if name == "" {
			c.Errorf("cycle", "endCycle has no cycle: the name of one that an earlier action begins")
			return
		}
		if known := c.before(cycleName); !slices.Contains(known, name) {
			c.Errorf("cycle", "no earlier action begins a cycle %q%s", name, wording.Suggest(name, known))
		}
	},
	Explain: func(a *Action) string { return "end the cycle " + a.EndsCycle() },
	Object:  func(a *Action) string { return a.EndsCycle() },
	Needs:   []Capability{SimulateNodes},
	Effects: func(*Action) []Effect { return []Effect{&Write{}} },
}

// checkSpec reports the mistakes in the spec of a resource, of which at is the place and path the name.
func checkSpec(at *yamlfile.Place, path string, spec map[string]any, by *crd.Definition) {
	for _, m := range by.Validate(spec) {
		at, path := at, path
		for _, step := range m.Path {
			if i, err := strconv.Atoi(step); err == nil {
				at, path = at.Item(i), fmt.Sprintf("%s[%d]", path, i)
			} else {
				at, path = at.Field(step), path+"."+step
			}
		}
		at.Errorf("%s: %s", path, m.Message)
	}
}
