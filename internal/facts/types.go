package facts

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// HoldsData reports whether a deleted object of a type, type[.group], loses something: data, or what only a user knows,
// as in custom resources.
func HoldsData(typ string) bool {
	if slices.Contains(holders, typ) {
		return true
	}
	return IsCustom(typ)
}

var holders = []string{"persistentvolumeclaim", "persistentvolume", "secret", StatefulSet, "namespace"}

// IsCustom reports whether a type, type[.group], is a custom resource or belongs to an aggregated API: its group is not
// one of Kubernetes' own.
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

// StatefulSet is the type of StatefulSets.
const StatefulSet = "statefulset.apps"

// KindOf is the kind of the observed object in lower case, or else its resource.
func KindOf(o *record.Observation) string { return strings.ToLower(cmp.Or(o.Kind, o.Resource)) }

// IsResource reports whether a name is the resource of a kind: its plural, by the API conventions.
func IsResource(name, kind string) bool {
	y, ok := strings.CutSuffix(kind, "y")
	return name == kind+"s" || name == kind+"es" || ok && name == y+"ies"
}
