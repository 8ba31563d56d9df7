package plan

import "testing"

func TestParseResourceKey(t *testing.T) {
	key := func(typ, group, namespace, name string) ResourceKey {
		return ResourceKey{Type: typ, Group: group, Namespace: namespace, Name: name}
	}
	const form = "is not a type/namespace/name such as pod/default/web-0 or node//n1"
	for _, tt := range []struct {
		text string
		want ResourceKey
		err  string
	}{
		{text: "pod/default/web-0", want: key("pod", "", "default", "web-0")},
		{text: "pod/*/web-*", want: key("pod", "", "*", "web-*")},
		{text: "node//n1", want: key("node", "", "", "n1")},
		{text: "node/*/n1", want: key("node", "", "*", "n1")},
		{text: "database/default/db", want: key("database", "", "default", "db")},
		{text: "database//db", want: key("database", "", "", "db")},
		{text: "database.example.trommel.dev/default/db",
			want: key("database", "example.trommel.dev", "default", "db")},
		{text: "pod.example.com//web-0", want: key("pod", "example.com", "", "web-0")},
		{text: "node.example.com/default/n1", want: key("node", "example.com", "default", "n1")},
		{text: "pods.example.com/default/web-0", want: key("pods", "example.com", "default", "web-0")},
		{text: "az09.az-09.az/az-09/x", want: key("az09", "az-09.az", "az-09", "x")},
		{text: "z0.9.z/0.9/x", err: `"z0.9.z/0.9/x": "0.9" is not a namespace`},
		{text: "lease/0z-9/system:node:N1", want: key("lease", "", "0z-9", "system:node:N1")},

		{text: "", err: `"" ` + form},
		{text: "pod", err: `"pod" ` + form},
		{text: "pod/default", err: `"pod/default" ` + form},
		{text: "pod/default/web-0/log", err: `"pod/default/web-0/log" ` + form},
		{text: "/default/x", err: `"/default/x" has no type; write type/namespace/name`},
		{text: ".example.com/default/x", err: `".example.com/default/x" has no type; write type/namespace/name`},
		{text: "pods/default/x", err: `"pods/default/x": a type must be singular; write pod/default/x`},
		{text: "Pods/default/x", err: `"Pods/default/x": a type must be singular; write pod/default/x`},
		{text: "Database/default/x", err: `"Database/default/x": a type must be lower case; write database/default/x`},
		{text: "0a/default/x", err: `"0a/default/x": "0a" is not a resource type`},
		{text: "{a/default/x", err: `"{a/default/x": "{a" is not a resource type`},
		{text: "a-b/default/x", err: `"a-b/default/x": "a-b" is not a resource type`},
		{text: "a_b/default/x", err: `"a_b/default/x": "a_b" is not a resource type`},
		{text: "a:b/default/x", err: `"a:b/default/x": "a:b" is not a resource type`},
		{text: "a{b/default/x", err: `"a{b/default/x": "a{b" is not a resource type`},
		{text: "a./default/x", err: `"a./default/x": "" is not an API group`},
		{text: "a.-b/default/x", err: `"a.-b/default/x": "-b" is not an API group`},
		{text: "a.b-/default/x", err: `"a.b-/default/x": "b-" is not an API group`},
		{text: "a.b_c/default/x", err: `"a.b_c/default/x": "b_c" is not an API group`},
		{text: "a/b.c/x", err: `"a/b.c/x": "b.c" is not a namespace`},
		{text: "a/-b/x", err: `"a/-b/x": "-b" is not a namespace`},
		{text: "a/b-/x", err: `"a/b-/x": "b-" is not a namespace`},
		{text: "a/B/x", err: `"a/B/x": "B" is not a namespace`},
		{text: "a/b:c/x", err: `"a/b:c/x": "b:c" is not a namespace`},
		{text: "a/b{c/x", err: `"a/b{c/x": "b{c" is not a namespace`},
		{text: "a/b*/x", err: `"a/b*/x": "b*" is not a namespace`},
		{text: "pod/default/", err: `"pod/default/" has no name; write * for all`},
		{text: "pod/default/a b", err: `"pod/default/a b": "a b" is not a name`},
		{text: "pod/default/a%2fb", err: `"pod/default/a%2fb": "a%2fb" is not a name`},
		{text: "pod//x", err: `"pod//x": a pod needs a namespace; write pod/default/x`},
		{text: "node/default/n1", err: `"node/default/n1": a node has no namespace; write node//n1`},
	} {
		got, err := ParseResourceKey(tt.text)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%s: %+v, error %q; want %+v, error %q", tt.text, got, text, tt.want, tt.err)
		}
		if err == nil && got.String() != tt.text {
			t.Errorf("%s is written as %s", tt.text, got)
		}
	}
}

func TestResourceKeyMatches(t *testing.T) {
	for _, tt := range []struct {
		key                         string
		typ, group, namespace, name string
		unknown                     bool // the group
		want                        bool
	}{
		{key: "pod/default/a", typ: "pod", namespace: "default", name: "a", want: true},
		{key: "pod/default/a", typ: "service", namespace: "default", name: "a"},
		{key: "pod/default/a", typ: "pod", namespace: "other", name: "a"},
		{key: "pod/default/a", typ: "pod", namespace: "default", name: "b"},
		{key: "pod/*/a", typ: "pod", namespace: "other", name: "a", want: true},
		{key: "node//a", typ: "node", name: "a", want: true},
		{key: "node//a", typ: "node", namespace: "default", name: "a", want: true}, // as a client may say
		{key: "database/default/a", typ: "database", group: "example.com", namespace: "default", name: "a", want: true},
		{key: "database.example.com/default/a", typ: "database", group: "example.com", namespace: "default", name: "a",
			want: true},
		{key: "database.example.com/default/a", typ: "database", group: "other.com", namespace: "default", name: "a"},
		{key: "database.example.com/default/a", typ: "database", namespace: "default", name: "a"},
		{key: "database.example.com/default/a", typ: "database", namespace: "default", name: "a", unknown: true,
			want: true},
	} {
		key, err := ParseResourceKey(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := key.Matches(tt.typ, tt.group, !tt.unknown, tt.namespace, tt.name); got != tt.want {
			t.Errorf("%s matches %s.%s/%s/%s: %t, want %t", tt.key, tt.typ, tt.group, tt.namespace, tt.name, got,
				tt.want)
		}
	}
}

func TestNamesWithStars(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"web", "web", true}, {"web", "web-0", false}, {"web-0", "web", false}, {"eb", "web", false},
		{"*", "web", true}, {"web-*", "web-0", true}, {"web-*", "web-", true}, {"web-*", "web", false},
		{"*-0", "web-0", true}, {"*-0", "web-1", false}, {"*-0", "web-0-0", true}, {"*-0", "-0-", false},
		{"a*b*c", "abc", true}, {"a*b*c", "a-b-b-c", true}, {"a*b*c", "acb", false}, {"a**c", "abc", true},
		{"*ab", "aab", true}, {"a*a", "a", false}, {"web**", "web", true}, {"web*x", "web", false},
	} {
		key := ResourceKey{Type: "pod", Namespace: "default", Name: tt.pattern}
		if got := key.Matches("pod", "", true, "default", tt.name); got != tt.want {
			t.Errorf("%s matches %s: %t, want %t", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func TestHasWildcard(t *testing.T) {
	for text, want := range map[string]bool{
		"pod/default/a": false, "node//a": false, "pod/*/a": true, "pod/default/a*": true, "pod/*/*": true,
	} {
		key, err := ParseResourceKey(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := key.HasWildcard(); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}
