package reference

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mask is a field that never counts.
type Mask struct {
	// Type of the objects, type[.group]; "*" is all.
	Type string `json:"type" yaml:"type"`
	// Path of the field from the object's root, with dots; "*" is one step of any name, "[]" an item of a list, and "**"
	// at the beginning any number of steps. Fields below it are masked too.
	Path   string `json:"path" yaml:"path"`
	Reason string `json:"reason" yaml:"reason"`
}

// standard are the masks of every reference.
var standard = []Mask{
	{"*", "metadata.uid", "generated"},
	{"*", "metadata.resourceVersion", "counts writes to the cluster"},
	{"*", "metadata.generation", "counts changes"},
	{"*", "metadata.creationTimestamp", "time"},
	{"*", "metadata.deletionTimestamp", "time"},
	{"*", "metadata.managedFields", "who wrote what"},
	{"*", "metadata.generateName", "part of a generated name"},
	{"*", "metadata.ownerReferences.[].uid", "generated"},
	{"*", "**.observedGeneration", "counts changes"},
	{"*", "**.lastTransitionTime", "time"},
	{"*", "**.lastUpdateTime", "time"},
	{"*", "**.lastProbeTime", "time"},
	{"*", "**.lastHeartbeatTime", "time"},
	{"*", "**.lastScheduleTime", "time"},
	{"*", "**.startTime", "time"},
	{"*", "**.completionTime", "time"},
	{"*", "**.startedAt", "time"},
	{"*", "**.finishedAt", "time"},
	{"*", "metadata.annotations.deployment.kubernetes.io/revision", "counts changes"},
	{"pod", "spec.nodeName", "the scheduler's choice"},
	{"pod", "status.hostIP", "the scheduler's choice"},
	{"pod", "status.hostIPs", "the scheduler's choice"},
	{"pod", "status.podIP", "assigned"},
	{"pod", "status.podIPs", "assigned"},
	{"pod", "status.containerStatuses.[].containerID", "generated"},
	{"pod", "status.containerStatuses.[].restartCount", "the controller's own process may have been killed"},
	{"service", "spec.clusterIP", "assigned"},
	{"service", "spec.clusterIPs", "assigned"},
	{"service", "spec.healthCheckNodePort", "assigned"},
	{"service", "spec.ports.[].nodePort", "assigned"},
	{"persistentvolumeclaim", "spec.volumeName", "generated"},
	{"persistentvolumeclaim", "metadata.annotations.volume.kubernetes.io/selected-node", "the scheduler's choice"},
	{"endpoints", "**", "follows pods"},
	{"endpointslice.discovery.k8s.io", "**", "follows pods"},
	{"event", "**", "a message"},
	{"event.events.k8s.io", "**", "a message"},
	{"lease.coordination.k8s.io", "**", "a lock"},
}

// masks decides which fields count.
type masks struct{ all []Mask }

// on is the mask that covers a field, or nil.
func (m masks) on(key Key, path []string) *Mask {
	typ := key.Type()
	for i := range m.all {
		mask := &m.all[i]
		if (mask.Type == "*" || mask.Type == typ) && covers(mask.Path, path) {
			return mask
		}
	}
	return nil
}

// covers reports whether a mask's path is the beginning of a path. A name in a path may have dots.
func covers(mask string, path []string) bool {
	if rest, ok := strings.CutPrefix(mask, "**"); ok {
		if rest == "" {
			return true
		}
		return slices.Contains(path, strings.TrimPrefix(rest, "."))
	}
	whole := join(path)
	for i := range path {
		if begins(mask, path[:i+1]) {
			return true
		}
	}
	return whole == mask
}

// begins reports whether the mask says exactly this path.
func begins(mask string, path []string) bool {
	for i, step := range path {
		rest, ok := strings.CutPrefix(mask, step)
		if !ok {
			if rest, ok = strings.CutPrefix(mask, "*"); !ok {
				return false
			}
		}
		if mask, ok = strings.CutPrefix(rest, "."); !ok {
			return rest == "" && i == len(path)-1
		}
	}
	return false
}

// item is the step of a path to a list's item.
const item = "[]"

func join(path []string) string { return strings.Join(path, ".") }

// Type is the type of the object, type[.group].
func (k Key) Type() string {
	typ, _, _ := strings.Cut(string(k), "/")
	return typ
}

// leaf is a value in an object. Where is its path with the items of lists told apart.
type leaf struct {
	path  []string
	where string
	value any
}

// leaves lists all values of an object that are neither mappings nor lists; an empty mapping or list counts as none.
// Items of a list are identified by their name, if they have one, and otherwise by their index.
func leaves(v any, path []string, where string, visit func(leaf)) {
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			at := k
			if where != "" {
				at = where + "." + k
			}
			leaves(value, append(slices.Clip(path), k), at, visit)
		}
		return
	case []any:
		for i, value := range v {
			leaves(value, append(slices.Clip(path), item), where+"["+itemName(value, i)+"]", visit)
		}
		return
	}
	visit(leaf{path, where, v})
}

// itemName tells an item from the others of its list.
func itemName(v any, i int) string {
	if m, ok := v.(map[string]any); ok {
		for _, field := range []string{"name", "type", "key", "mountPath", "ip"} {
			if s := text(m, field); s != "" {
				return field + "=" + s
			}
		}
		if port, ok := m["port"]; ok {
			return fmt.Sprintf("port=%v", port)
		}
	}
	return strconv.Itoa(i)
}
