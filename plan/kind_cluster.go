package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// ClusterType names a type of cluster.
type ClusterType string

// Capability is something that clusters of some types can do and others cannot. Its text completes "a cluster that
// can …".
type Capability string

// What plans and suites may need of a cluster, beside access to its API servers.
const (
	// ConfigureControlPlane starts a control plane as several clusters and variants want it.
	ConfigureControlPlane Capability = "configure its control plane"
	// ObserveAPIServers holds observations in API servers: they are instrumented.
	ObserveAPIServers Capability = "observe and pause API servers"
	KillAPIServers    Capability = "kill and start API servers"
	// RunControllers runs controllers as processes that can be observed, killed, started and routed.
	RunControllers Capability = "run controllers under test"
	// OwnClock lets time pass by a clock of the cluster's own. Without it, time is real.
	OwnClock Capability = "have a clock of its own"
	// SimulateNodes has nodes that a plan may replace.
	SimulateNodes Capability = "have simulated nodes"
	// InstallBuilds installs another build of the controllers while a plan goes on.
	InstallBuilds Capability = "install other builds of its controllers"
	// CarryOutDisruptions has something that injects the faults of disruptions.
	CarryOutDisruptions Capability = "carry out disruptions"
	// InstallDisruptions runs the controllers of disruptions as a Deployment. Without it, they run inside of Trommel.
	InstallDisruptions Capability = "install the controllers of disruptions"
	// LoadImages runs containers of images that the local container engine has, among them injectors.
	LoadImages Capability = "take images of the local container engine"
)

// ClusterKind is all that is to know of a type of cluster without starting one. Each type is declared once, with
// [RegisterClusterKind]. How such clusters are started and found is declared with cluster.Register.
type ClusterKind struct {
	Type ClusterType
	// Can lists what all clusters of this type can do.
	Can []Capability
	// Fields are those of [ClusterSpec] that the type takes, beside type and kubernetesVersion.
	Fields []string
	// Disruptions are the kinds of disruptions that can be carried out, of those that can; empty: all.
	Disruptions []string
	// APIServers is the number of API servers that plans know, if the type does not take apiServers; 0: 1.
	APIServers int
	// Ready is the default of [Timeouts].Ready, if it is another one than elsewhere; 0: it is not.
	Ready time.Duration

	// check reports mistakes in what a suite says of its cluster and of what goes on in it, as far as they are mistakes
	// only with this type; nil: there are none.
	check func(s *Suite, spec *ClusterSpec, at *yamlfile.Place)
	// checkWrite reports a write of a step or of an action at a place where it must not be; nil: it may be anywhere.
	checkWrite func(spec *ClusterSpec, at *yamlfile.Place, key ResourceKey)
}

// controlPlaneFields are the fields of [ClusterSpec] that say how a control plane is started.
var controlPlaneFields = []string{
	"apiServers", "nodes", "disableControllers", "featureGates", "apiServerArgs", "controllerManagerArgs", "answers",
	"jobKinds", "simulatedPods", "removedAPIs",
}

// takes lists the types of clusters that take a field.
func takes(field string) (types []string) {
	for _, k := range clusterKinds {
		if slices.Contains(k.Fields, field) {
			types = append(types, string(k.Type))
		}
	}
	return types
}

// completeCluster fills in what the type of a cluster decides.
func (c *ClusterSpec) completeCluster() {
	if kind, known := LookupClusterKind(c.Type); known && !slices.Contains(kind.Fields, "apiServers") {
		c.APIServers = max(kind.APIServers, 1)
	}
}

// clusterKinds holds the types of clusters in the order in which messages name them.
var clusterKinds []*ClusterKind

// RegisterClusterKind adds a type of cluster. It panics if there is one of that name. It is meant for initialization:
// suites must not be read at the same time.
func RegisterClusterKind(k ClusterKind) {
	if _, known := LookupClusterKind(k.Type); known {
		panic(fmt.Sprintf("plan: duplicate kind of cluster %q", k.Type))
	}
	clusterKinds = append(clusterKinds, &k)
	setClusterWords()
}

func setClusterWords() {
	names := make([]string, 0, len(clusterKinds))
	for _, k := range clusterKinds {
		names = append(names, string(k.Type))
	}
	layout.SetWords(reflect.TypeFor[ClusterType](), names)
}

// LookupClusterKind finds what is known of a type of cluster.
func LookupClusterKind(t ClusterType) (kind ClusterKind, known bool) {
	i := slices.IndexFunc(clusterKinds, func(k *ClusterKind) bool { return k.Type == t })
	if i < 0 {
		return ClusterKind{Type: t}, false
	}
	return *clusterKinds[i], true
}

// needs reports that the suite's type of cluster lacks a capability that what asks for. A type that is not known has
// been reported where it stands.
func (s *Suite) needs(at *yamlfile.Place, need Capability, what string) {
	if kind, known := LookupClusterKind(s.Cluster.Type); known && !slices.Contains(kind.Can, need) {
		at.Errorf("%s needs a cluster that can %s; one of type %q cannot", what, need, s.Cluster.Type)
	}
}

// needs reports that the suite's type of cluster lacks a capability; without a suite nothing is known of the cluster.
func (c *checker) needs(at *yamlfile.Place, need Capability, what string) {
	if c.suite != nil {
		c.suite.needs(at, need, what)
	}
}

// capabilities reports what the suite asks for and its type of cluster cannot do.
func (s *Suite) capabilities(at *yamlfile.Place) {
	s.clusterFields(&s.Cluster, at.Field("cluster"))
	if f := at.Field("clusters"); f.Given() {
		s.needs(f, ConfigureControlPlane, "clusters")
	}
	s.disruptionNeeds(at.Field("disruptions"), &s.Disruptions)
	for i, c := range s.Controllers {
		s.needs(at.Field("controllers").Item(i), RunControllers, fmt.Sprintf("controller %q", c.Name))
	}
	for name, v := range s.Variants {
		if v.Disruptions != nil {
			s.disruptionNeeds(at.Field("variants").Field(name).Field("disruptions"), v.Disruptions)
		}
		if f := at.Field("variants").Field(name).Field("cluster"); f.Given() || len(v.Cluster.FeatureGates) > 0 {
			s.needs(f, ConfigureControlPlane, "a variant's cluster")
		}
	}
}

// disruptionNeeds reports what the suite, or a variant, says of the controllers of disruptions and its type of cluster
// cannot do.
func (s *Suite) disruptionNeeds(at *yamlfile.Place, d *DisruptionControllers) {
	if d.Install {
		s.needs(at.Field("install"), InstallDisruptions, "install")
	}
	if d.Image != "" {
		s.needs(at.Field("image"), LoadImages, "an image of injectors")
	}
}

// clusterFields reports fields of a cluster that its type does not take, and what else its type refuses.
func (s *Suite) clusterFields(spec *ClusterSpec, at *yamlfile.Place) {
	kind, known := LookupClusterKind(spec.Type)
	if !known {
		return
	}
	for _, name := range layout.ShapeOf(reflect.TypeFor[ClusterSpec]()).Names {
		f := at.Field(name)
		// A version is asked for on any cluster: a run refuses another one.
		if name == "type" || name == "kubernetesVersion" || !f.Given() || slices.Contains(kind.Fields, name) {
			continue
		}
		f.Errorf("%s is not for a cluster of type %q (it is for: %s)", name, kind.Type,
			strings.Join(takes(name), ", "))
	}
	if kind.check != nil {
		kind.check(s, spec, at)
	}
}

// stepNeeds reports what a step does and the suite's type of cluster cannot do, or must not.
func (s *Suite) stepNeeds(step *Step, at *yamlfile.Place) {
	if step.AdvanceTime > 0 {
		s.needs(at.Field("advanceTime"), OwnClock, "advanceTime")
	}
	if step.Upgrade != nil {
		s.needs(at.Field("upgrade"), InstallBuilds, "upgrade")
	}
	if step.Apply != nil {
		for _, object := range step.Apply.Objects {
			s.mayWrite(at.Field("apply"), keyOf(object))
		}
	}
	if step.Delete != nil {
		s.mayWrite(at.Field("delete"), step.Delete.ResourceKey)
	}
	if step.Patch != nil {
		s.mayWrite(at.Field("patch"), step.Patch.ResourceKey)
	}
}

// keyOf returns the namespace of an object in a workload, and its name.
func keyOf(object map[string]any) ResourceKey {
	kind, _ := object["kind"].(string)
	m, _ := object["metadata"].(map[string]any)
	name, _ := m["name"].(string)
	namespace, _ := m["namespace"].(string)
	return ResourceKey{Type: strings.ToLower(kind), Namespace: namespace, Name: name}
}

// mayWrite reports a write that the suite's type of cluster does not allow.
func (s *Suite) mayWrite(at *yamlfile.Place, key ResourceKey) {
	if kind, known := LookupClusterKind(s.Cluster.Type); known && kind.checkWrite != nil && at.Given() && !at.Failed() {
		kind.checkWrite(&s.Cluster, at, key)
	}
}

// capabilities reports what the action does and the suite's type of cluster cannot do.
func (c *checker) capabilities(a *Action, at *yamlfile.Place) {
	what := string(a.Type)
	for _, need := range a.kind().Needs {
		c.needs(at, need, what)
		if need == OwnClock && c.suite != nil && c.suite.Time == RealTime {
			at.Errorf("%s needs a cluster with a clock of its own, and the suite says time: real", what)
		}
	}
	if w := EffectOf[*Write](a); w != nil && c.suite != nil {
		if key := cmp.Or(w.Deletes, w.Patches); !key.IsZero() {
			c.suite.mayWrite(at, key)
		}
		if w.Applies != nil {
			c.suite.mayWrite(at, keyOf(w.Applies))
		}
	}
}
