package facts

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// templateHash is the label with the hash of a Deployment's pod template. It is part of the names of its ReplicaSets
// and pods.
const templateHash = "pod-template-hash"

// aTemplateHash is what such a hash looks like. Kubernetes writes a number of 32 bits with other digits; those with
// fewer digits than these are rare, and could be a word.
var aTemplateHash = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{6,10}$`)

// noteController adds what an object of a controller under test is called: its pod, or what makes its pods. The hash of
// its pod template may be another one in each run, because the template names the executable. Controllers copy it from
// their own pods.
func (n *names) noteController(controller string, h *record.HistoryEntry, object map[string]any) {
	labels, _ := metadata.Of(object)["labels"].(map[string]any)
	hash := metadata.Text(labels, templateHash)
	if hash == "" {
		n.note(keyOf(h, h.Name), object)
		return
	}
	key, known := n.uids[metadata.UID(object)]
	if !known {
		key = keyOf(h, fmt.Sprintf("%s#%d", called(controller), len(n.uids)+1))
	}
	n.note(key, object)
	n.noteHash(controller, hash)
}

// notePod adds what a pod of a controller is called of which only the name is known.
func (n *names) notePod(controller, pod string) {
	set, suffix, ok := cutLast(pod, "-")
	if !ok || !IsGenerated(suffix) {
		return
	}
	_, hash, ok := cutLast(set, "-")
	if !ok || !aTemplateHash.MatchString(hash) {
		return
	}
	for _, name := range []string{pod, set} {
		n.generate(name, Key("//"+called(controller)+"#0"))
	}
	n.noteHash(controller, hash)
}

func (n *names) noteHash(controller, hash string) {
	if aTemplateHash.MatchString(hash) {
		n.generate(hash, Key("//(template of controller "+controller+")"))
		n.hashes[hash] = true
	}
}

// generate adds a name, unless it is known.
func (n *names) generate(name string, key Key) {
	if _, known := n.generated[name]; !known {
		n.generated[name] = key
		n.version++
	}
}

// called is what is written instead of the name of a controller's ReplicaSet or pod.
func called(controller string) string { return "(controller " + controller + ")-" }

func keyOf(h *record.HistoryEntry, name string) Key {
	typ := h.Type
	if h.Group != "" {
		typ += "." + h.Group
	}
	return KeyIn(h.Cluster, typ+"/"+h.Namespace+"/"+name)
}

// cutLast cuts a text at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// rename notes that an object is called otherwise. It reports whether that is news.
func (n *names) rename(key Key, object map[string]any) bool {
	before := n.version
	uid := metadata.UID(object)
	if uid != "" && n.uids[uid] != key {
		delete(n.newest, n.uids[uid])
	}
	n.note(key, object)
	return n.version != before
}
