package plan

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Kubeconfig is how a controller gets access to another cluster of the suite. The zero value works: the variable
// TROMMEL_KUBECONFIG_NAME has the path of the file, see [KubeconfigVariable].
type Kubeconfig struct {
	// Secret is namespace/name of a Secret in the controller's cluster that also holds the kubeconfig; empty: none.
	Secret string            `yaml:"secret"`
	Key    string            `yaml:"key" default:"kubeconfig"` // in the Secret
	Labels map[string]string `yaml:"labels"`                   // of the Secret
}

// KubeconfigVariable is the environment variable with the path of the kubeconfig of a cluster.
func KubeconfigVariable(cluster string) string {
	return "TROMMEL_KUBECONFIG_" + strings.ToUpper(strings.ReplaceAll(cluster, "-", "_"))
}

// ClusterNames lists the suite's clusters in the order in which they are written, the default one first. Nil: the suite
// has only one cluster, which has no name.
func (s *Suite) ClusterNames() []string {
	if len(s.Clusters) == 0 {
		return nil
	}
	if len(s.order) != len(s.Clusters) {
		return sortedKeys(s.Clusters) // built in Go
	}
	return s.order
}

// FirstCluster names the cluster of whatever names none; empty: the suite has only one.
func (s *Suite) FirstCluster() string {
	if names := s.ClusterNames(); len(names) > 0 {
		return names[0]
	}
	return ""
}

// ClusterSpecOf returns what the suite says of a cluster; an empty name is that of the first.
func (s *Suite) ClusterSpecOf(name string) ClusterSpec {
	if spec, ok := s.Clusters[name]; ok {
		return spec
	}
	return s.Cluster
}

// DisruptedCluster names the cluster of the disruption that an action disrupt begins: the one that the action names,
// otherwise that of the controller that is disrupted, otherwise the first.
func (s *Suite) DisruptedCluster(a *Action) string {
	return cmp.Or(a.Cluster, s.homeOfDisrupted(a.Begins()), s.FirstCluster())
}

// homeOfDisrupted names the cluster of the controller that a disruption is for; empty: it is for none.
func (s *Suite) homeOfDisrupted(d Disruption) string {
	if d == nil || d.Selects() {
		return ""
	}
	for i := range s.Controllers {
		c := &s.Controllers[i]
		if d.Controller() == c.Name || d.Controller() == "" && len(s.Controllers) == 1 {
			return c.Cluster
		}
	}
	return ""
}

// ServerIn returns the name by which plans and records know an API server of a cluster: west/apiserver-1. In a suite
// with only one cluster, which has no name, it is apiserver-1.
func ServerIn(cluster, apiServer string) string {
	if cluster == "" || strings.Contains(apiServer, "/") {
		return apiServer
	}
	return cluster + "/" + apiServer
}

// SplitServer is the reverse of [ServerIn].
func SplitServer(name string) (cluster, apiServer string) {
	if cluster, apiServer, ok := strings.Cut(name, "/"); ok {
		return cluster, apiServer
	}
	return "", name
}

// SameCluster reports whether two API servers are of one cluster.
func SameCluster(apiServer, other string) bool {
	a, _ := SplitServer(apiServer)
	b, _ := SplitServer(other)
	return a == b
}

// Moved returns API servers, one of each cluster, with another one instead of that of its cluster. It does not
// change its argument.
func Moved(apiServers []string, to string) []string {
	return append(slices.DeleteFunc(slices.Clone(apiServers), func(server string) bool {
		return SameCluster(server, to)
	}), to)
}

// ServersOf returns those API servers that are in the cluster; an empty name is the only one.
func ServersOf(apiServers []string, cluster string) []string {
	return slices.DeleteFunc(slices.Clone(apiServers), func(server string) bool {
		in, _ := SplitServer(server)
		return in != cluster
	})
}

// completeClusters fills in what suites with several clusters leave out.
func (s *Suite) completeClusters(at *yamlfile.Place) {
	if len(s.Clusters) == 0 {
		return
	}
	s.order = slices.DeleteFunc(at.Field("clusters").Names(), func(name string) bool {
		_, ok := s.Clusters[name]
		return !ok
	})
	first := s.FirstCluster()
	s.Cluster = s.Clusters[first]
	for i := range s.Controllers {
		c := &s.Controllers[i]
		if c.Cluster == "" {
			c.Cluster = first
		}
		c.APIServer = ServerIn(c.Cluster, c.APIServer)
	}
	completeManifests(s.Manifests, first)
	for _, b := range s.Builds {
		completeManifests(b.Manifests, first)
	}
	for _, w := range s.Workloads {
		completeSteps(w.Steps, first)
	}
	completeInvariants(s.Invariants, first)
}

func completeManifests(all []Manifest, first string) {
	for i := range all {
		if all[i].Cluster == "" {
			all[i].Cluster = first
		}
	}
}

func completeSteps(steps []Step, first string) {
	for i := range steps {
		if s := &steps[i]; s.Cluster == "" && s.inCluster() {
			s.Cluster = first
		}
	}
}

func completeInvariants(all []Invariant, first string) {
	for i := range all {
		if all[i].Cluster == "" {
			all[i].Cluster = first
		}
	}
}

// inCluster reports whether the step does something in one cluster.
func (s *Step) inCluster() bool {
	return s.Apply != nil || s.Delete != nil || s.Patch != nil || s.Wait != nil || s.Exec != nil
}

// completeCluster fills in the cluster of an action.
func (a *Action) completeCluster(s *Suite) {
	first := s.FirstCluster()
	if first == "" {
		return
	}
	switch {
	case a.kind().Target == TargetAPIServer:
		if a.Cluster == "" {
			a.Cluster, _ = SplitServer(a.Target)
		}
		if a.Cluster == "" {
			a.Cluster = first
		}
		if a.Target != "" {
			a.Target = ServerIn(a.Cluster, a.Target)
		}
	case !slices.Contains(a.kind().fields(), "cluster") || a.Cluster != "":
	case a.kind().Complete != nil:
		a.kind().Complete(a, s)
	case a.kind().Target == TargetController && a.Scope().Everything():
		// What has no scope is about all clusters.
	default:
		a.Cluster = first
	}
	if c := s.controller(a.Target); c != nil && a.ReconnectAPIServer != "" {
		a.ReconnectAPIServer = ServerIn(c.Cluster, a.ReconnectAPIServer)
	}
}

// controller returns the controller with that name, or nil.
func (s *Suite) controller(name string) *Controller {
	i := slices.IndexFunc(s.Controllers, func(c Controller) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Controllers[i]
}

// completeCluster fills in the cluster of what a definition observes.
func (d *Definition) completeCluster(s *Suite) {
	first := s.FirstCluster()
	o := &d.Observe
	if first == "" || *o == (ObservationPoint{}) {
		return
	}
	switch d.Condition.Type {
	case OnTimeout, OnNone, OnReconcile, OnAnnotatedCall:
		return
	}
	if o.Cluster == "" && o.Timing.ofAPIServer() {
		o.Cluster, _ = SplitServer(o.ObserveBy)
	}
	if o.Cluster == "" {
		o.Cluster = first
	}
	if o.Timing.ofAPIServer() && o.ObserveBy != "" {
		o.ObserveBy = ServerIn(o.Cluster, o.ObserveBy)
	}
}

// checkClusters reports mistakes in the suite's clusters.
func (s *Suite) checkClusters(at *yamlfile.Place) {
	clusters, one := at.Field("clusters"), at.Field("cluster")
	if !clusters.Given() {
		s.Cluster.check(one)
		s.checkNoCluster(at)
		return
	}
	if one.Given() {
		one.Errorf("the suite has both cluster and clusters; it takes one")
	}
	names := s.ClusterNames()
	if len(names) < 2 && !clusters.Failed() {
		clusters.Errorf("clusters has %d; a suite with one cluster says what it is with cluster:", len(names))
	}
	for i, name := range names {
		spec, at := s.Clusters[name], clusters.Field(name)
		if !validName(name, false) || len(name) > 30 {
			at.Name().Errorf("cluster name %q: use up to 30 lower case letters, digits and -", name)
		}
		spec.check(at)
		s.clusterFields(&spec, at)
		if spec.Type != s.Cluster.Type {
			at.Field("type").Errorf("all clusters of a suite must be of one type; that of %s is %s", names[0],
				s.Cluster.Type)
		}
		if i > 0 && spec.KubernetesVersion != s.Cluster.KubernetesVersion {
			at.Field("kubernetesVersion").Errorf("all clusters of a suite must have one kubernetesVersion; "+
				"that of %s is %q", names[0], s.Cluster.KubernetesVersion)
		}
		if i > 0 && !reflect.DeepEqual(spec.RemovedAPIs, s.Cluster.RemovedAPIs) {
			at.Field("removedAPIs").Errorf("removedAPIs must be the same in all clusters of a suite")
		}
	}
	for i := range s.Controllers {
		c, at := &s.Controllers[i], at.Field("controllers").Item(i)
		if at.Failed() {
			continue
		}
		s.checkClusterName(at.Field("cluster"), c.Cluster)
		for _, name := range sortedKeys(c.Kubeconfigs) {
			k, at := c.Kubeconfigs[name], at.Field("kubeconfigs").Field(name)
			s.checkClusterName(at.Name(), name)
			if name == c.Cluster {
				at.Name().Errorf("controller %q runs in %s, where it has a service account; kubeconfigs are for the "+
					"other clusters", c.Name, name)
			}
			namespace, secret, ok := strings.Cut(k.Secret, "/")
			if k.Secret != "" && (!ok || !validNamespace(namespace) || !validName(secret, true)) {
				at.Field("secret").Errorf("secret %q: write namespace/name", k.Secret)
			}
		}
	}
	s.checkClusterNames(at)
}

// checkClusterNames reports clusters that the suite does not have, in what does not depend on how many it has.
func (s *Suite) checkClusterNames(at *yamlfile.Place) {
	s.checkClusterOfManifests(at.Field("manifests"), s.Manifests)
	for _, name := range s.BuildNames() {
		s.checkClusterOfManifests(at.Field("builds").Field(name).Field("manifests"), s.Builds[name].Manifests)
	}
	for _, name := range sortedKeys(s.Workloads) {
		s.checkClusterOfSteps(at.Field("workloads").Field(name).Field("steps"), s.Workloads[name].Steps)
	}
	for i := range s.Invariants {
		s.checkClusterName(at.Field("invariants").Item(i).Field("cluster"), s.Invariants[i].Cluster)
	}
}

func (s *Suite) checkClusterOfManifests(at *yamlfile.Place, all []Manifest) {
	for i := range all {
		s.checkClusterName(at.Item(i).Field("cluster"), all[i].Cluster)
	}
}

func (s *Suite) checkClusterOfSteps(at *yamlfile.Place, steps []Step) {
	for i := range steps {
		s.checkClusterName(at.Item(i).Field("cluster"), steps[i].Cluster)
	}
}

// checkClusterName reports the name of a cluster that the suite does not have.
func (s *Suite) checkClusterName(at *yamlfile.Place, name string) {
	switch names := s.ClusterNames(); {
	case name == "":
	case len(names) == 0:
		at.Errorf("cluster %q: the suite has only one cluster, which has no name; several are named in clusters:", name)
	case !slices.Contains(names, name):
		at.Errorf("unknown cluster %q (%s)", name, suiteHas(names))
	}
}

// checkNoCluster reports names of clusters in a suite that has only one.
func (s *Suite) checkNoCluster(at *yamlfile.Place) {
	for i, c := range s.Controllers {
		at := at.Field("controllers").Item(i)
		s.checkClusterName(at.Field("cluster"), c.Cluster)
		for _, name := range slices.Sorted(maps.Keys(c.Kubeconfigs)) {
			s.checkClusterName(at.Field("kubeconfigs").Field(name).Name(), name)
		}
	}
	s.checkClusterNames(at)
}

// checkCluster checks the names of clusters in an action.
func (c *checker) checkCluster(a *Action, at *yamlfile.Place) {
	if c.suite == nil {
		return
	}
	c.suite.checkClusterName(at.Field("cluster"), a.Cluster)
	for j := range a.Trigger.Definitions {
		d, at := &a.Trigger.Definitions[j], at.Field("trigger").Field("definitions").Item(j)
		field := at.Field("observationPoint").Field("cluster")
		c.suite.checkClusterName(field, d.Observe.Cluster)
		switch d.Condition.Type {
		case OnReconcile, OnAnnotatedCall:
			if d.Observe.Cluster != "" {
				field.Errorf("%s has no object, so it is in no cluster", d.Condition.Type)
			}
		}
	}
}

// In returns the suite with only those controllers and manifests that are in one of its clusters. An empty name is its
// only one.
func (s *Suite) In(cluster string) *Suite {
	if len(s.Clusters) == 0 {
		return s
	}
	m := *s
	m.Controllers = slices.DeleteFunc(slices.Clone(s.Controllers), func(c Controller) bool {
		return c.Cluster != cluster
	})
	m.Manifests = slices.DeleteFunc(slices.Clone(s.Manifests), func(m Manifest) bool { return m.Cluster != cluster })
	m.Cluster = s.Clusters[cluster]
	return &m
}

// SmallCluster reports whether a cluster of several needs neither a scheduler nor anything that simulates nodes: it has
// no nodes, and no controller runs in it.
func (s *Suite) SmallCluster(name string) bool {
	nodes := s.Clusters[name].Nodes
	return nodes != nil && *nodes == 0 && !slices.ContainsFunc(s.Controllers, func(c Controller) bool {
		return c.Cluster == name
	})
}
