package plan

import (
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Existing is a cluster that is there already, which a kubeconfig leads to.
const Existing ClusterType = "existing"

// An existing cluster belongs to its users: Trommel runs the controllers under test on this machine, with the rights of
// their service accounts, and writes only where the suite allows it.
func init() {
	RegisterClusterKind(ClusterKind{
		Type: Existing, Can: []Capability{RunControllers},
		Fields: []string{"kubeconfig", "context", "namespaces"},
		check:  checkExisting, checkWrite: checkExistingWrite,
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
	for i := range s.Controllers {
		c, at := &s.Controllers[i], s.source.Whole().Field("controllers").Item(i)
		switch field := at.Field("deployment"); {
		case at.Failed() || field.Failed() || len(spec.Namespaces) == 0:
		case c.Deployment.Name == "" && c.Image == "":
			at.Errorf("on an existing cluster controller %q needs deployment: namespace/name, one of the manifests: "+
				"what Trommel would generate may do everything", c.Name)
		case c.Deployment.Name != "" && !slices.Contains(spec.Namespaces, c.Deployment.Namespace):
			field.Errorf("deployment %s/%s is not in one of the suite's namespaces (%s)", c.Deployment.Namespace,
				c.Deployment.Name, strings.Join(spec.Namespaces, ", "))
		}
	}
}

// checkExistingWrite reports a write in a namespace that the suite does not name. Whether an object without a namespace
// has none, or goes to default, is known only where its type is.
func checkExistingWrite(spec *ClusterSpec, at *yamlfile.Place, key ResourceKey) {
	if key.Namespace != "" && !slices.Contains(spec.Namespaces, key.Namespace) && len(spec.Namespaces) > 0 {
		at.Errorf("%s %s is in namespace %s, and the suite's namespaces are %s", key.Type, key.Name, key.Namespace,
			strings.Join(spec.Namespaces, ", "))
	}
}
