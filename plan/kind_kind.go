package plan

import "github.com/trommel-dev/trommel/plan/internal/yamlfile"

// KindCluster is a cluster that kind makes: a real node in a container.
const KindCluster ClusterType = "kind"

// On kind's node containers are real, and so is time.
func init() {
	RegisterClusterKind(ClusterKind{
		Type: KindCluster, Can: []Capability{
			ObserveAPIServers, KillAPIServers, RunControllers, CarryOutDisruptions, LoadImages,
		},
		Fields: []string{
			"apiServers", "disableControllers", "featureGates", "apiServerArgs", "controllerManagerArgs",
			"removedAPIs", "images",
		},
		// Those of the backend for real nodes that do not need another node.
		Disruptions: []string{
			"containerFailure", "cpuPressure", "diskPressure", "dns", "memoryPressure", "network",
		},
		check: checkKind,
	})
}

func checkKind(_ *Suite, spec *ClusterSpec, at *yamlfile.Place) {
	for i, name := range spec.Images {
		if name == "" {
			at.Field("images").Item(i).Missing("name an image that the local container engine has")
		}
	}
}
