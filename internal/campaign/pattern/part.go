package pattern

import (
	"cmp"
	"encoding/base64"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// part is a part of an object that a controller sets.
type part struct {
	key  facts.Key
	path []string
	by   string
	at   int // the controller's last change that has set it
	end  any // its value at the end
	// before is its value before the controller's last update of it; nil: it was absent, or updated is false.
	before  any
	updated bool // the controller has changed it after the creation
	managed bool // the controller has updated it, or applied it again, in this object or in another one of the type
	others  bool // another client has changed it since then

	data object // the object at the end
}

func (p *part) String() string { return strings.Join(p.path, ".") }

// parts lists the parts that controllers have set and that exist at the end: of objects that they have created, the
// fields of the spec, the data, labels, owner references and finalizers; of other objects, the finalizers. Their
// other writes there are answers to others, who may change them.
func parts(h *moment.History) []*part {
	all := map[string]*part{}    // by object and path
	managed := map[string]bool{} // by controller, type and path
	made := map[facts.Key]bool{} // by a controller under test
	for i := range h.Changes {
		c := &h.Changes[i]
		if c.Event == record.Created {
			made[c.Key] = c.By != ""
			maps.DeleteFunc(all, func(_ string, p *part) bool { return p.key == c.Key })
		}
		if c.Cur == nil {
			continue
		}
		for _, path := range partsOf(c) {
			name := strings.Join(path, ".")
			if !made[c.Key] && name != "metadata.finalizers" {
				continue
			}
			p := all[string(c.Key)+" "+name]
			was := moment.ValueAt(c.Prev, path)
			changes := c.Event == record.Updated && !reflect.DeepEqual(was, moment.ValueAt(c.Cur, path))
			switch {
			case c.By == "":
				if p != nil && changes {
					p.others = true
				}
				continue
			case changes, c.Op == wire.Apply && (c.AppliedAgain || c.Event == record.Updated) && sends(c, path):
				managed[c.By+" "+c.Key.Type()+" "+name] = true
			case c.Event == record.Created && sends(c, path):
			default:
				continue
			}
			if p == nil {
				p = &part{key: c.Key, path: path}
				all[string(c.Key)+" "+name] = p
			}
			p.by, p.at = c.By, i
			if changes {
				p.before, p.updated = was, true
			}
		}
	}
	var list []*part
	for _, p := range all {
		o := h.Baseline.Objects[p.key]
		if o == nil || o.End == nil {
			continue
		}
		p.data, p.end = o.End, moment.ValueAt(o.End, p.path)
		if p.end == nil {
			continue
		}
		p.managed = managed[p.by+" "+p.key.Type()+" "+p.String()]
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *part) int {
		return cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(a.String(), b.String()))
	})
	return list
}

// partsOf lists the paths of an object's parts, before and after a change.
func partsOf(c *facts.Change) [][]string {
	paths := [][]string{
		{"metadata", "labels"}, {"metadata", "ownerReferences"}, {"metadata", "finalizers"}, {"data"}, {"binaryData"},
	}
	fields := map[string]bool{}
	for _, o := range []object{c.Prev, c.Cur} {
		spec, _ := o["spec"].(object)
		for field := range spec {
			fields[field] = true
		}
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		paths = append(paths, []string{"spec", field})
	}
	return paths
}

// sends reports whether a write contains a part, and not only the API server's default for it. If it is not known what
// was sent, everything that is there counts.
func sends(c *facts.Change, path []string) bool {
	if c.Sent == nil {
		return moment.ValueAt(c.Cur, path) != nil
	}
	return moment.ValueAt(c.Sent, path) != nil || path[0] == "data" && c.Sent["stringData"] != nil
}

// mutable are the fields of specs that the API server lets clients change to other values and back; of other types of
// objects, all.
var mutable = map[string][]string{
	"statefulset.apps": {
		"replicas", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy",
		"minReadySeconds", "ordinals",
	},
	"job.batch": {
		"parallelism", "suspend", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
	},
	"pod":                   {},
	"persistentvolumeclaim": {},
	"persistentvolume":      {},
}

// fixed are fields of other types' specs that the API server lets no client change.
var fixed = map[string][]string{
	"deployment.apps": {"selector"}, "daemonset.apps": {"selector"}, "replicaset.apps": {"selector"},
	"service": {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"},
}

// immutable reports whether the API server refuses to change the part.
func (p *part) immutable() bool {
	typ := p.key.Type()
	switch p.path[0] {
	case "spec":
		fields, limited := mutable[typ]
		return limited && !slices.Contains(fields, p.path[1]) || slices.Contains(fixed[typ], p.path[1])
	case "data", "binaryData":
		return typ == "controllerrevision.apps" || p.data["immutable"] == true
	}
	return false
}

// foreign is a value that no controller sets.
const foreign = "trommel"

// override is a change of a part by another client.
type override struct {
	kind      string // in signatures
	words     string
	operation object // of a JSON patch
}

// overrides lists changes of a part that the API server accepts. The best one is to undo the controller's last update:
// the value was valid once. No change is known for most other values.
func (p *part) overrides() []override {
	at := "/" + strings.Join(p.path, "/")
	var all []override
	switch {
	case p.updated && p.before == nil:
		all = append(all, override{"removed", "removes " + p.String(), object{"op": "remove", "path": at}})
	case p.updated && !reflect.DeepEqual(p.before, p.end):
		all = append(all, override{
			"set back", "sets " + p.String() + " back to its previous value",
			object{"op": "replace", "path": at, "value": p.before},
		})
	}
	if p.String() == "spec.replicas" && !isZero(p.end) && (len(all) == 0 || !isZero(p.before)) {
		all = append(all, override{"zero", "sets spec.replicas to 0", object{"op": "replace", "path": at, "value": 0}})
	}
	if len(all) > 0 {
		return all
	}
	set := func(path string, value any) []override {
		return []override{{"changed", "changes " + p.String(), object{"op": "replace", "path": path, "value": value}}}
	}
	switch p.String() {
	case "metadata.labels", "metadata.ownerReferences", "metadata.finalizers":
		return []override{{"removed", "removes " + p.String(), object{"op": "remove", "path": at}}}
	case "spec.template":
		if image, _ := moment.ValueAt(p.data, []string{"spec", "template", "spec"}).(object); image != nil {
			if containers, _ := image["containers"].([]any); len(containers) > 0 {
				return set(at+"/spec/containers/0/image", "registry.example/"+foreign+":1.0")
			}
		}
		return nil
	}
	switch v := p.end.(type) {
	case float64:
		return set(at, v+1)
	case bool:
		return set(at, !v)
	case object:
		// A mapping from names to texts takes any text.
		keys := slices.Sorted(maps.Keys(v))
		isText := func(k string) bool { _, ok := v[k].(string); return ok }
		if len(keys) == 0 || len(slices.DeleteFunc(slices.Clone(keys), isText)) > 0 {
			return nil
		}
		value := foreign
		if p.key.Type() == "secret" || p.path[0] == "binaryData" {
			value = base64.StdEncoding.EncodeToString([]byte(foreign))
		}
		return set(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(keys[0]), value)
	}
	return nil
}

func isZero(v any) bool {
	n, ok := v.(float64)
	return ok && n == 0
}
