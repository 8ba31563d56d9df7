package plan

import "github.com/trommel-dev/trommel/plan/internal/yamlfile"

// KindCluster is a cluster that kind makes: a real node in a container.
const KindCluster ClusterType = "kind"

// On kind's node containers are real, and so is time.
func init() {
	RegisterClusterKind(ClusterKind{
		Type: KindCluster, Can: []Capability{ObserveAPIServers, KillAPIServers, RunControllers},
		Fields: []string{
			"apiServers", "disableControllers", "featureGates", "apiServerArgs", "controllerManagerArgs",
			"removedAPIs", "images",
		},
		check: checkKind,
	})
}

func checkKind(s *Suite, spec *ClusterSpec, at *yamlfile.Place) {
	if s.Disruptions.Install {
		at.Errorf("the suite installs the controllers of disruptions, which need a cluster that can %s; one of "+
			"type %q "+
			"cannot", InstallDisruptions, KindCluster)
	}
	for i, name := range spec.Images {
		if name == "" {
			at.Field("images").Item(i).Missing("name an image that the local Docker engine has")
		}
	}
}
