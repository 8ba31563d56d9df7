package wire

import "testing"

func TestRuleTakes(t *testing.T) {
	pod := Observation{Point: ControllerRecv, Phase: After, Operation: Update, Kind: "pod", GroupKnown: true,
		Namespace: "default", Name: "web-0"}
	with := func(f func(*Observation)) Observation { o := pod; f(&o); return o }
	untyped := with(func(o *Observation) { o.Kind = "" })
	for _, tt := range []struct {
		name   string
		rule   Rule
		o      Observation
		want   bool
		reason string
	}{
		{name: "empty rule takes all", o: pod, want: true},
		{name: "kind", rule: Rule{Kind: "pod", Resource: "pods"}, o: pod, want: true},
		{name: "other kind", rule: Rule{Kind: "node", Resource: "nodes"}, o: pod},
		{name: "resource decides where known", rule: Rule{Kind: "pod", Resource: "pods"},
			o: with(func(o *Observation) { o.Kind, o.Resource = "eviction", "pods" }), want: true},
		{name: "resource decides against the same kind", rule: Rule{Kind: "scale", Resource: "scales"},
			o:      with(func(o *Observation) { o.Kind, o.Resource = "scale", "deployments" }),
			reason: "a Scale is the body of an update of a Deployment"},
		{name: "only a kind, of an object with both", rule: Rule{Kind: "pod"},
			o: with(func(o *Observation) { o.Resource = "pods" }), want: true},
		{name: "other group", rule: Rule{Kind: "pod", Group: "example.com"}, o: pod},
		{name: "any group", rule: Rule{Kind: "pod", Group: "example.com", AnyGroup: true}, o: pod, want: true},
		{name: "unknown group", rule: Rule{Kind: "pod", Group: "example.com"},
			o: with(func(o *Observation) { o.GroupKnown = false }), want: true},
		{name: "group without a type says nothing", rule: Rule{Name: "web-0"},
			o: with(func(o *Observation) { o.Group = "apps" }), want: true},
		{name: "namespace", rule: Rule{Namespace: "kube-system"}, o: pod},
		{name: "any namespace", rule: Rule{Namespace: "*"}, o: pod, want: true},
		{name: "name", rule: Rule{Name: "web-1"}, o: pod},
		{name: "name with star", rule: Rule{Name: "w*-*"}, o: pod, want: true},
		{name: "star at the end", rule: Rule{Name: "web-0*"}, o: pod, want: true},
		{name: "star does not match less", rule: Rule{Name: "web-0*0"}, o: pod},
		{name: "a list names no object", rule: Rule{Name: "web-0"}, o: with(func(o *Observation) { o.Name = "" })},
		{name: "only live reads, of a read of the cache", rule: Rule{Live: true}, o: pod},
		{name: "only live reads", rule: Rule{Live: true}, o: with(func(o *Observation) { o.Live = true }), want: true},
		{name: "operation", rule: Rule{Operations: []Operation{Create, Update}}, o: pod, want: true},
		{name: "other operation", rule: Rule{Operations: []Operation{Delete}}, o: pod},
		{name: "call", rule: Rule{Call: "x"}, o: pod},
		{name: "any call", o: with(func(o *Observation) { o.CallName = "x" }), want: true},
		{name: "same call", rule: Rule{Call: "x"}, o: with(func(o *Observation) { o.CallName = "x" }), want: true},

		// Hook and coordinator once judged by rules of their own, and differed in these.
		{name: "type of an untyped object", rule: Rule{Kind: "pod", Resource: "pods"}, o: untyped,
			reason: "a rule for a type must not take what may be of any type"},
		{name: "only a resource, of an untyped object", rule: Rule{Resource: "pods"}, o: untyped,
			reason: "two empty kinds are not the same kind: neither side knows one"},
		{name: "only a resource, of an object with a kind", rule: Rule{Resource: "pods"}, o: pod,
			reason: "nothing can be compared; the coordinator knows both names of its types and sets both"},
		{name: "only a kind, of an object with a resource", rule: Rule{Kind: "pod"},
			o: with(func(o *Observation) { o.Kind, o.Resource = "", "pods" }), reason: "nothing can be compared"},
		{name: "namespace with star", rule: Rule{Namespace: "def*t"}, o: pod, want: true,
			reason: "a namespace is a pattern like a name"},
		{name: "other namespace with star", rule: Rule{Namespace: "kube-*"}, o: pod},
		{name: "other point", rule: Rule{Point: ControllerRead}, o: pod,
			reason: "the answer does not depend on whether the caller has sorted its rules by point"},
		{name: "other phase", rule: Rule{Phase: Before}, o: pod,
			reason: "the answer does not depend on whether the caller has sorted its rules by phase"},
		{name: "a call that has yet to begin", rule: Rule{Phase: Before},
			o: with(func(o *Observation) { o.Phase = "" }), want: true,
			reason: "a hook asks before the call whether it must be reported at all"},
	} {
		if tt.rule.Point == "" {
			tt.rule.Point = pod.Point
		}
		if tt.rule.Phase == "" {
			tt.rule.Phase = pod.Phase
		}
		if got := tt.rule.Takes(&tt.o); got != tt.want {
			t.Errorf("%s: %t, want %t (%s)", tt.name, got, tt.want, tt.reason)
		}
	}
	var empty Rule
	if empty.Takes(&pod) {
		t.Error("a rule without a point takes an observation")
	}
}

func TestRuleTakesItem(t *testing.T) {
	rule := Rule{Items: true, ItemNamespace: "default", ItemName: "web-*"}
	for _, tt := range []struct {
		namespace, name string
		want            bool
	}{{"default", "web-1", true}, {"default", "db-1", false}, {"other", "web-1", false}} {
		if got := rule.TakesItem(tt.namespace, tt.name); got != tt.want {
			t.Errorf("%s/%s: %t, want %t", tt.namespace, tt.name, got, tt.want)
		}
	}
	all, none := Rule{Items: true}, Rule{}
	if !all.TakesItem("default", "web-1") || none.TakesItem("default", "web-1") {
		t.Error("without patterns, Items alone decides")
	}
}

func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "web", true}, {"*", "", true}, {"*", "web", true},
		{"*-1", "web-1", true}, {"*-1", "web-2", false}, {"-1", "web-1", false},
		{"a*b*c", "abc", true}, {"a*b*c", "a-b-c", true}, {"a*b*c", "ac", false}, {"a*b*c", "acb", false},
		{"a**c", "abc", true}, {"a**c", "ab", false},
		{"*ab*b", "ab", false}, {"*ab*b", "abb", true}, {"a*a", "a", false},
	} {
		if got := matches(tt.pattern, tt.s); got != tt.want {
			t.Errorf("%q matches %q: %t, want %t", tt.pattern, tt.s, got, tt.want)
		}
	}
}
