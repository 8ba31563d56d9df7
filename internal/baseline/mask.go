package baseline

import (
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
)

// Mask is a field that never counts.
type Mask = plan.Mask

// Masks decide which fields count when runs are compared.
type Masks struct {
	// Given are the fields that never count in any run: those of the suite, and the standard ones.
	Given []Mask `json:"masks"`
	// Found are the fields that differed between the runs.
	Found []Found `json:"found,omitempty"`
	// Written are the groups of objects that count because controllers under test write them, though others of their
	// type never count: see followsPods and isLock.
	Written []facts.Key `json:"written,omitempty"`
	// Unordered are the lists whose order never counts: it differs between runs without faults.
	Unordered []Mask `json:"unordered,omitempty"`
	// Compared are fields that count although a mask covers them.
	Compared []Mask `json:"compared,omitempty"`
}

// ConflictAnnotation is an annotation that means nothing. Plans write it to objects to change their versions.
const ConflictAnnotation = "trommel.dev/conflict"

// upToDate is the reason of the standard mask of observedGeneration: see [filter.behind].
const upToDate = "counts changes; only whether it has caught up with metadata.generation counts"

// followsPods is the reason of the standard masks of objects that Kubernetes' own controllers keep. If a controller
// under test writes one, it counts.
const followsPods = "follows pods; counts if a controller under test writes it"

// isLock is the reason of the standard mask of leases. If a controller under test always writes one of that name, and
// not to be elected leader, it counts, but for who holds it and since when.
const isLock = "a lock; counts if a controller under test writes it, and not for its election"

// withoutOrder are lists that have no order in any baseline.
var withoutOrder = []Mask{
	{Type: "endpoints", Path: "subsets.[].addresses", Reason: "a set"},
	{Type: "endpoints", Path: "subsets.[].notReadyAddresses", Reason: "a set"},
	{Type: "endpointslice.discovery.k8s.io", Path: "endpoints", Reason: "a set"},
}

// isRevision is the reason of the standard masks of revisions, which are hashes of a template with all that is in it,
// also what does not count. See [filter.counting].
const isRevision = "a hash of the template, which counts itself; only whether both revisions are the same counts"

// standard are the masks of every baseline.
var standard = []Mask{
	{Type: "*", Path: "metadata.uid", Reason: "generated"},
	{Type: "*", Path: "metadata.resourceVersion", Reason: "counts writes to the cluster"},
	{Type: "*", Path: "metadata.generation", Reason: "counts changes"},
	{Type: "*", Path: "metadata.creationTimestamp", Reason: "time"},
	{Type: "*", Path: "metadata.deletionTimestamp", Reason: "time"},
	{Type: "*", Path: "metadata.deletionGracePeriodSeconds", Reason: "comes with the mark for deletion, which counts"},
	{Type: "*", Path: "metadata.managedFields", Reason: "who wrote what"},
	{Type: "*", Path: "metadata.generateName", Reason: "part of a generated name"},
	{Type: "*", Path: "**." + ConflictAnnotation, Reason: "what a plan writes to cause a conflict"},
	{Type: "*", Path: "**.observedGeneration", Reason: upToDate},
	{Type: "*", Path: "**.lastTransitionTime", Reason: "time"},
	{Type: "*", Path: "**.lastUpdateTime", Reason: "time"},
	{Type: "*", Path: "**.lastProbeTime", Reason: "time"},
	{Type: "*", Path: "**.lastHeartbeatTime", Reason: "time"},
	{Type: "*", Path: "**.lastScheduleTime", Reason: "time"},
	{Type: "*", Path: "status.**.startTime", Reason: "time"},
	{Type: "*", Path: "status.**.completionTime", Reason: "time"},
	{Type: "*", Path: "status.**.startedAt", Reason: "time"},
	{Type: "*", Path: "status.**.finishedAt", Reason: "time"},
	{Type: "*", Path: "metadata.annotations.deployment.kubernetes.io/revision", Reason: "counts changes"},
	{Type: facts.StatefulSet, Path: "status.currentRevision", Reason: isRevision},
	{Type: facts.StatefulSet, Path: "status.updateRevision", Reason: isRevision},
	{Type: "pod", Path: "spec.nodeName", Reason: "the scheduler's choice"},
	{Type: "pod", Path: "status.hostIP", Reason: "the scheduler's choice"},
	{Type: "pod", Path: "status.hostIPs", Reason: "the scheduler's choice"},
	{Type: "pod", Path: "status.podIP", Reason: "assigned"},
	{Type: "pod", Path: "status.podIPs", Reason: "assigned"},
	{Type: "pod", Path: "status.containerStatuses.[].containerID", Reason: "generated"},
	{
		Type: "pod", Path: "status.containerStatuses.[].restartCount",
		Reason: "the controller's own process may have been killed",
	},
	{Type: "service", Path: "spec.clusterIP", Reason: "assigned"},
	{Type: "service", Path: "spec.clusterIPs", Reason: "assigned"},
	{Type: "service", Path: "spec.healthCheckNodePort", Reason: "assigned"},
	{Type: "service", Path: "spec.ports.[].nodePort", Reason: "assigned"},
	{Type: "persistentvolumeclaim", Path: "spec.volumeName", Reason: "generated"},
	{
		Type: "persistentvolumeclaim", Path: "metadata.annotations.volume.kubernetes.io/selected-node",
		Reason: "the scheduler's choice",
	},
	{Type: "endpoints", Path: "**.nodeName", Reason: "the scheduler's choice"},
	{Type: "endpointslice.discovery.k8s.io", Path: "**.nodeName", Reason: "the scheduler's choice"},
	{Type: "endpointslice.discovery.k8s.io", Path: "**.zone", Reason: "the scheduler's choice"},
	{Type: "*", Path: "metadata.annotations.endpoints.kubernetes.io/last-change-trigger-time", Reason: "time"},
	{Type: "*", Path: "metadata.annotations.control-plane.alpha.kubernetes.io/leader", Reason: "a lock"},
	{Type: "endpoints", Path: "**", Reason: followsPods},
	{Type: "endpointslice.discovery.k8s.io", Path: "**", Reason: followsPods},
	{Type: "event", Path: "**", Reason: "a message"},
	{Type: "event.events.k8s.io", Path: "**", Reason: "a message"},
	{Type: lease, Path: "**", Reason: isLock},
	{Type: lease, Path: "spec.holderIdentity", Reason: "may be the name of a process"},
	{Type: lease, Path: "spec.leaseTransitions", Reason: "counts changes"},
	{Type: lease, Path: "spec.acquireTime", Reason: "time"},
	{Type: lease, Path: "spec.renewTime", Reason: "time"},
}

// covering is the first of some masks that covers a field, or nil.
func covering(all []Mask, key facts.Key, path []string) *Mask {
	typ := key.Type()
	for i := range all {
		mask := &all[i]
		if (mask.Type == "*" || mask.Type == typ) && Covers(mask.Path, path) {
			return mask
		}
	}
	return nil
}

// Covers reports whether a mask's path is the beginning of a path. A name in a path may have dots. If the path
// distinguishes the items of lists, "[name=a]", the mask's step "[]" covers any item. If it does not, a mask of one
// item covers the step "[]": perhaps it is that item.
func Covers(mask string, path []string) bool {
	if mask == "" {
		return true
	}
	if rest, ok := strings.CutPrefix(mask, "**"); ok {
		rest = strings.TrimPrefix(rest, ".")
		for i := range path {
			if Covers(rest, path[i:]) {
				return true
			}
		}
		return false
	}
	if len(path) == 0 {
		return false
	}
	step := path[0]
	if rest, ok := after(mask, step); ok && Covers(rest, path[1:]) {
		return true
	}
	if rest, ok := after(mask, "*"); ok {
		return Covers(rest, path[1:])
	}
	if !isItem(step) || !strings.HasPrefix(mask, "[") {
		return false
	}
	if rest, ok := after(mask, facts.Item); ok {
		return Covers(rest, path[1:])
	}
	end := strings.Index(mask, "]")
	for step == facts.Item && end > 0 {
		if rest, ok := after(mask, mask[:end+1]); ok && Covers(rest, path[1:]) {
			return true
		}
		next := strings.Index(mask[end+1:], "]") // the item's name may have brackets
		if next < 0 {
			break
		}
		end += 1 + next
	}
	return false
}

// after is what follows a step at the beginning of a mask's path. The step of a list's item needs no dot before it.
func after(mask, step string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(mask, step)
	if !ok || rest == "" || strings.HasPrefix(rest, "[") && step != "" {
		return rest, ok
	}
	return strings.CutPrefix(rest, ".")
}

// isItem reports whether a step stands for an item of a list.
func isItem(step string) bool { return strings.HasPrefix(step, "[") && strings.HasSuffix(step, "]") }

const lease = "lease.coordination.k8s.io"
