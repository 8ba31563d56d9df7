package facts

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Key names an object over all runs of a workload: type[.group]/namespace/name. A name that the API server or
// the object's controller has generated is replaced by its beginning and its number among those of its owner, in the
// order of their creation: "web-#1". In a suite with several clusters, the name of the object's cluster comes first, as
// in records: "west: pod/default/web". What is derived from the key of an object by its name is in the same cluster.
type Key string

// clusterEnd ends the name of a cluster at the beginning of a key; see [record.In].
const clusterEnd = ": "

// KeyIn returns the key of an object of a cluster by its key there; an empty name is the only cluster.
func KeyIn(cluster, key string) Key { return Key(record.In(cluster, key)) }

// Cluster is the name of the object's cluster; empty: there is only one.
func (k Key) Cluster() string {
	cluster, _ := k.split()
	return cluster
}

// Local is the key without the cluster: type[.group]/namespace/name.
func (k Key) Local() string {
	_, local := k.split()
	return local
}

// split separates the cluster, which has no slash, from the object, whose name may have the same separator.
func (k Key) split() (cluster, local string) {
	cluster, local, several := strings.Cut(string(k), clusterEnd)
	if !several || strings.Contains(cluster, "/") {
		return "", string(k)
	}
	return cluster, local
}

// Type is the type of the object, type[.group].
func (k Key) Type() string {
	typ, _, _ := strings.Cut(k.Local(), "/")
	return typ
}

// Group is the key with "*" instead of the numbers in the name that distinguish equal objects: the numbers of generated
// names, and of a StatefulSet's pods and claims. A value that is random in one of these objects is random in all of
// them. Which of them is the first, or the leader, may differ in each run.
func (k Key) Group() Key { return k.WithNumber("*") }

// WithNumber replaces the numbers in the name that tell equal objects apart.
func (k Key) WithNumber(with string) Key {
	from := strings.LastIndexByte(string(k), '/') + 1
	name := string(k)[from:]
	var b strings.Builder
	for i := 0; i < len(name); {
		end := i
		for end < len(name) && name[end] >= '0' && name[end] <= '9' {
			end++
		}
		starts := i > 0 && (name[i-1] == '#' || name[i-1] == '-')
		ends := end == len(name) || strings.IndexByte("-.#", name[end]) >= 0
		switch {
		case end > i && starts && ends:
			b.WriteString(with)
			i = end
		case end > i:
			b.WriteString(name[i:end])
			i = end
		default:
			b.WriteByte(name[i])
			i++
		}
	}
	return k[:from] + Key(b.String())
}

// namer gives objects their keys.
type namer struct {
	keys    map[string]Key // by UID
	numbers map[string]int // of generated names, by owner and beginning
}

func (n *namer) key(h *record.HistoryEntry, object map[string]any) (key Key, generated bool) {
	typ := h.Type
	if h.Group != "" {
		typ += "." + h.Group
	}
	typ = record.In(h.Cluster, typ)
	meta := metadata.Of(object)
	uid := metadata.Text(meta, "uid")
	if k, ok := n.keys[uid]; ok {
		return k, true // also if it has lost its owner
	}
	name, beginning := h.Name, metadata.Text(meta, "generateName")
	beginning = beginning[:min(len(beginning), maxBeginning)]
	if !IsGenerated(strings.TrimPrefix(name, beginning)) {
		beginning = ""
	}
	if beginning == "" {
		beginning = ofOwner(name, object)
	}
	if beginning == "" || !strings.HasPrefix(name, beginning) {
		return Key(typ + "/" + h.Namespace + "/" + name), false
	}
	owner := ""
	if owners := metadata.Owners(object); len(owners) > 0 {
		if k, ok := n.keys[metadata.Text(owners[0], "uid")]; ok {
			owner = string(k)
		}
	}
	// The name that a generated one begins with may be generated itself, as that of a ReplicaSet's pods is.
	if i := strings.LastIndex(owner, "/"); i >= 0 {
		beginning = owner[i+1:] + "-"
	}
	group := owner + "|" + typ + "/" + h.Namespace + "/" + beginning
	n.numbers[group]++
	key = Key(fmt.Sprintf("%s/%s/%s#%d", typ, h.Namespace, beginning, n.numbers[group]))
	n.keys[uid] = key
	return key, true
}

// maxBeginning is how much of generateName the API server keeps, to have room for what it adds.
const maxBeginning = 58

// ofOwner is the beginning of a name that a controller has made of the owner's and something of its own choice: a
// CronJob adds the time to its Jobs' names, and others a random text like the API server's, without generateName.
// Empty: it is another name. A fixed text of five such letters, as in "db-https", counts as random, too: it has the
// same number in each run.
func ofOwner(name string, object map[string]any) string {
	for _, ref := range metadata.Owners(object) {
		beginning := metadata.Text(ref, "name") + "-"
		rest, ok := strings.CutPrefix(name, beginning)
		if ok && (IsGenerated(rest) || ref["kind"] == "CronJob" && strings.Trim(rest, "0123456789") == "") {
			return beginning
		}
	}
	return ""
}

// IsGenerated reports whether the end of a name is one that the API server generates: five letters or digits, without
// vowels and characters that look alike. StatefulSets set generateName too, but name their pods themselves.
func IsGenerated(suffix string) bool {
	return len(suffix) == 5 && strings.Trim(suffix, "bcdfghjklmnpqrstvwxz2456789") == ""
}
