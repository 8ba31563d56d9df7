package plan

import (
	"time"

	"github.com/trommel-dev/trommel/plan/internal/crd"
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

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
		// Those that do not need another node.
		Disruptions: crd.DisruptionsOfRealNodes(),
		// A kubelet brings a changed Secret, such as the certificates that a controller makes for its own webhooks, to
		// a container after a minute and more.
		Ready: 3 * time.Minute,
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
