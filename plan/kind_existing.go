package plan

import (
	"slices"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// An existing cluster is somebody's: Trommel runs the controllers under test on this machine, with the rights of their
// service accounts, and writes only where the suite allows it.
func init() {
	RegisterClusterKind(ClusterKind{
		Type: Existing, Can: []Capability{RunControllers},
		Fields: []string{"kubeconfig", "context", "namespaces"},
		check:  checkExisting,
	})
}

func checkExisting(s *Suite, spec *ClusterSpec, at *yamlfile.Place) {
	if file := at.Field("kubeconfig"); spec.Kubeconfig != "" {
		checkFile(file, spec.Kubeconfig)
	}
	list := at.Field("namespaces")
	if len(spec.Namespaces) == 0 && !list.Failed() {
		list.Missing("an existing cluster needs namespaces: the only ones in which a run may write")
	}
	for i, name := range spec.Namespaces {
		switch at := list.Item(i); {
		case !validNamespace(name):
			at.Errorf("namespace %q: use lower case letters, digits and -", name)
		case slices.Contains(spec.Namespaces[:i], name):
			at.Errorf("duplicate namespace %q", name)
		}
	}
}
