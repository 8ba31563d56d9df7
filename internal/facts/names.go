package facts

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
)

// names are what the objects of a run are called in the values of others. UIDs, generated names and IP addresses differ
// in each run, but not what they belong to. They are replaced before values are compared, so that a reference to the
// wrong object shows.
type names struct {
	uids      map[string]Key
	newest    map[Key]string  // the UID of the last object of that key
	generated map[string]Key  // by name
	hashes    map[string]bool // those of the controllers' pod templates, which generated has, too
	addresses map[Key]Key     // by the address as a key: each cluster has addresses of its own
	// authorities are the certificates of the clusters' authorities, by cluster: a baseline and later runs are of
	// different ones.
	authorities map[string]authority
	version     int // counts what was added
}

func newNames() *names {
	return &names{
		uids: map[string]Key{}, newest: map[Key]string{}, generated: map[string]Key{}, addresses: map[Key]Key{},
		authorities: map[string]authority{}, hashes: map[string]bool{},
	}
}

// note adds what an object is called.
func (n *names) note(key Key, object map[string]any) {
	meta := metadata.Of(object)
	if uid := metadata.Text(meta, "uid"); uid != "" && n.newest[key] != uid {
		n.uids[uid], n.newest[key] = key, uid
		n.version++
	}
	generated := strings.Contains(string(key), "#")
	if name := metadata.Text(meta, "name"); generated && name != "" && n.generated[name] != key {
		n.generated[name] = key
		n.version++
	}
	status, _ := object["status"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	for _, ip := range []string{metadata.Text(status, "podIP"), metadata.Text(spec, "clusterIP")} {
		if at := KeyIn(key.Cluster(), ip); address.MatchString(ip) && n.addresses[at] != key {
			n.addresses[at] = key
			n.version++
		}
	}
	if data, _ := object["data"].(map[string]any); key.Type() == "configmap" && meta["name"] == rootAuthority {
		ca := strings.TrimSpace(metadata.Text(data, "ca.crt"))
		if cluster := key.Cluster(); ca != "" && n.authorities[cluster] == nil {
			encode := base64.StdEncoding.EncodeToString
			n.authorities[cluster] = authority{ca, encode([]byte(ca + "\n")), encode([]byte(ca))}
			n.version++
		}
	}
}

// authority is the certificate of an authority in all forms in which it is in other texts: as it is, which is the
// shortest, and in base64.
type authority []string

// replaced returns a text with a replacement for the certificate.
func (a authority) replaced(text, replacement string) string {
	for _, form := range a {
		text = strings.ReplaceAll(text, form, replacement)
	}
	return text
}

// rootAuthority is the ConfigMap with the certificate of the cluster's authority, which the controller manager puts
// into each namespace.
const rootAuthority = "kube-root-ca.crt"

// withoutAuthorities replaces the certificates of the clusters' authorities in an object of a cluster, as they are or
// in base64, also within something that is in base64 as a whole, such as a kubeconfig in a Secret.
func (n *names) withoutAuthorities(cluster, text string) string {
	for in, ca := range n.authorities {
		if len(text) < len(ca[0]) {
			continue
		}
		replacement := "(certificate of the cluster's authority)"
		if in != cluster {
			replacement = "(certificate of " + in + "'s authority)"
		}
		plain, err := base64.StdEncoding.DecodeString(text)
		if without := ca.replaced(string(plain), replacement); err == nil && without != string(plain) {
			text = "base64 of " + without
		} else {
			text = ca.replaced(text, replacement)
		}
	}
	return text
}

var (
	// AnyUID matches a UID in any text.
	AnyUID  = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	address = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`)
	word    = regexp.MustCompile(`[a-z0-9]+(?:-[a-z0-9]+)+`)
)

// rewrite replaces what differs in each run by what it belongs to. Generated reports whether that includes a generated
// name, so that the place in a list may be another one in each run. The text is in an object of the cluster.
func (n *names) rewrite(cluster, s string) (text string, generated bool) {
	text = n.withoutAuthorities(cluster, s)
	if len(text) >= 36 {
		text = AnyUID.ReplaceAllStringFunc(text, func(uid string) string {
			key, ok := n.uids[uid]
			if !ok {
				return uid
			}
			generated = generated || strings.Contains(string(key), "#")
			if n.newest[key] != uid {
				return uidOf + "an earlier " + unnumbered(key) + ")"
			}
			return uidOf + unnumbered(key) + ")"
		})
	}
	if strings.Count(text, ".") >= 3 && len(n.addresses) > 0 {
		text = address.ReplaceAllStringFunc(text, func(ip string) string {
			key, ok := n.addresses[KeyIn(cluster, ip)]
			if !ok {
				return ip
			}
			generated = generated || strings.Contains(string(key), "#")
			return "(address of " + unnumbered(key) + ")"
		})
	}
	if n.hashes[text] {
		return nameIn(n.generated[text]), true
	}
	if len(n.generated) > 0 && strings.Contains(text, "-") {
		text = word.ReplaceAllStringFunc(text, func(w string) string {
			named, ok := n.inWord(w)
			generated = generated || ok
			return named
		})
	}
	return text, generated
}

// uidOf begins what is written instead of a UID.
const uidOf = "(UID of "

// UnknownUID is a UID in the value got that belongs to no object that the run has seen, if the value without faults has
// an object's UID; empty: there is none.
func UnknownUID(want, got any) string {
	text, _ := want.(string)
	if !strings.Contains(text, uidOf) {
		return ""
	}
	text, _ = got.(string)
	return AnyUID.FindString(text)
}

// HasAddress reports whether a text contains an IP address.
func HasAddress(text string) bool { return address.MatchString(text) }

// inWord replaces a generated name that is in a word, alone or between other parts: "data-web-x7k2p".
func (n *names) inWord(w string) (string, bool) {
	if key, ok := n.generated[w]; ok {
		return nameIn(key), true
	}
	parts := strings.Split(w, "-")
	for length := len(parts) - 1; length > 0; length-- {
		for from := 0; from+length <= len(parts); from++ {
			if key, ok := n.generated[strings.Join(parts[from:from+length], "-")]; ok {
				all := slices.Concat(parts[:from], []string{nameIn(key)}, parts[from+length:])
				return strings.Join(all, "-"), true
			}
		}
	}
	return w, false
}

// unnumbered is a key without the numbers of generated names: they say only which was created first.
func unnumbered(key Key) string { return number.ReplaceAllString(string(key), "#") }

// nameIn is the name in a key, without numbers.
func nameIn(key Key) string {
	text := unnumbered(key)
	return text[strings.LastIndex(text, "/")+1:]
}

var number = regexp.MustCompile(`#[0-9]+`)

// Rewritten is a text of an object in which something was replaced.
type Rewritten struct {
	Text string `json:"text"`
	// Generated: it contains a generated name.
	Generated bool `json:"generated,omitempty"`
}

// Texts are the texts of the object's end state that name other objects as only this run does, with what replaces them.
func (o *Object) Texts() map[string]Rewritten {
	if o.names == nil {
		return o.Rewritten
	}
	if o.Rewritten == nil || o.rewrittenAt != o.names.version {
		o.Rewritten, o.rewrittenAt = map[string]Rewritten{}, o.names.version
		o.names.collect(o.cluster, o.End, o.Rewritten)
	}
	return o.Rewritten
}

// Normal is the object's end state in a form that can be compared with that of another run: what differs in each run is
// replaced by what it belongs to. It shares what is the same with the end state; neither may be changed.
func (o *Object) Normal() map[string]any {
	texts := o.Texts()
	if len(texts) == 0 {
		return o.End
	}
	v, _ := rewrite(o.End, texts)
	object, _ := v.(map[string]any)
	return object
}

// Rename notes that the object has another key. It reports whether that is new.
func (o *Object) Rename(key Key) bool {
	if o.names == nil || o.Last() == nil {
		return false
	}
	return o.names.rename(key, o.Last())
}

// Detach makes the object independent of its run, so that it can be written to a file, and read concurrently.
func (o *Object) Detach() {
	o.Texts()
	o.names, o.states, o.trails, o.generations = nil, nil, nil, nil
}

func (n *names) collect(cluster string, v any, all map[string]Rewritten) {
	text := func(s string) {
		if to, generated := n.rewrite(cluster, s); to != s {
			all[s] = Rewritten{to, generated}
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			if k == "managedFields" {
				continue
			}
			text(k)
			n.collect(cluster, value, all)
		}
	case []any:
		for _, value := range v {
			n.collect(cluster, value, all)
		}
	case string:
		text(v)
	}
}

// Bag is a list without an order, because generated names are in it. Its items are compared together.
type Bag []any

// rewrite returns the value with the texts replaced, and whether generated names were. It does not change the value.
func rewrite(v any, texts map[string]Rewritten) (value any, generated bool) {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		collided := map[string]bool{}
		for k, value := range v {
			value, has := rewrite(value, texts)
			r, ok := texts[k]
			generated = generated || has || r.Generated
			if ok {
				k = r.Text
			}
			old, taken := m[k]
			switch {
			case collided[k]:
				m[k] = append(old.(Bag), value) //nolint:forcetypeassert // it is one
			case taken:
				m[k], collided[k] = Bag{old, value}, true
			default:
				m[k] = value
			}
		}
		return m, generated
	case []any:
		list := make([]any, len(v))
		unplaced := false
		for i, item := range v {
			var has bool
			list[i], has = rewrite(item, texts)
			generated = generated || has
			unplaced = unplaced || has && ItemName(list[i]) == ""
		}
		if unplaced {
			return Bag(list), generated
		}
		return list, generated
	case string:
		if r, ok := texts[v]; ok {
			return r.Text, r.Generated
		}
	}
	return v, false
}
