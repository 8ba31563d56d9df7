package facts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// HoldsData reports whether objects of a type, type[.group], hold what is lost with them: data, or what only a user
// knows, as custom resources do.
func HoldsData(typ string) bool {
	if slices.Contains(holders, typ) {
		return true
	}
	return IsCustom(typ)
}

var holders = []string{"persistentvolumeclaim", "persistentvolume", "secret", StatefulSet, "namespace"}

// IsCustom reports whether a type, type[.group], is one of custom resources, or of an aggregated API: Kubernetes itself
// does not have its group.
func IsCustom(typ string) bool {
	_, group, found := strings.Cut(typ, ".")
	return found && !slices.Contains(groups, group)
}

// groups are those of Kubernetes' own types, but for the one without a name.
var groups = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "authentication.k8s.io",
	"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io",
	"discovery.k8s.io", "events.k8s.io", "extensions", "flowcontrol.apiserver.k8s.io", "imagepolicy.k8s.io",
	"internal.apiserver.k8s.io", "metrics.k8s.io", "networking.k8s.io", "node.k8s.io", "policy",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
	"storagemigration.k8s.io",
}

const StatefulSet = "statefulset.apps"

// typeOf is the kind, or else the resource, of what an observation is about.
func KindOf(o *record.Observation) string { return strings.ToLower(cmp.Or(o.Kind, o.Resource)) }

// isResource reports whether a name is that of a kind's resource: as API conventions have it, the plural.
func IsResource(name, kind string) bool {
	y, ok := strings.CutSuffix(kind, "y")
	return name == kind+"s" || name == kind+"es" || ok && name == y+"ies"
}
