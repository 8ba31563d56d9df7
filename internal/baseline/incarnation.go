package baseline

import (
	"slices"
	"strings"
)

// incarnations compares how often an object of which the end is alike was created; nil: as often as without faults.
//
// What a controller under test creates or deletes itself is its own doing. Others, such as the garbage collector or the
// StatefulSet controller, do what it has led them to: if they have deleted what held data, the data is lost, whoever
// did it. That anything else was replaced more often, such as pods in a further rollout, has cost time at most. And
// that it was replaced less often may be right: who did not see a state need not bring about what it asked for.
func incarnations(key Key, want, got *Object) *Difference {
	if got.Made >= want.Made && got.Made <= want.MostMade || (want.End == nil) != (got.End == nil) {
		return nil
	}
	d := &Difference{Key: key, Want: timesOf(want), Got: timesOf(got), Count: true}
	lost := HoldsData(key.Type()) && want.MostMade > 0 && got.Made > want.MostMade
	d.Note = !want.Ours && !got.Ours && !lost
	return d
}

// HoldsData reports whether objects of a type, type[.group], hold what is lost with them: data, or what only a user
// knows, as custom resources do.
func HoldsData(typ string) bool {
	if slices.Contains(holders, typ) {
		return true
	}
	return IsCustom(typ)
}

var holders = []string{"persistentvolumeclaim", "persistentvolume", "secret", statefulSet, "namespace"}

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
