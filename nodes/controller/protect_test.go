package controller

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A request sets annotations that are not there, and removes those that it has set, and no others.
func TestProtect(t *testing.T) {
	const down, downBy = AnnotationScaleDownDisabled, AnnotationScaleDownDisabledBy
	const disrupt, disruptBy = AnnotationDoNotDisrupt, AnnotationDoNotDisruptBy
	type set = map[string]string
	for name, tt := range map[string]struct {
		given, protected set
		meanwhile        func(set)
		after            set
	}{
		"a new node": {nil, set{down: "true", downBy: "q", disrupt: "true", disruptBy: "q"}, nil, set{}},
		"a user's": {set{down: "true"}, set{down: "true", disrupt: "true", disruptBy: "q"}, nil,
			set{down: "true"}},
		"a user's false": {set{disrupt: "false"}, set{down: "true", downBy: "q", disrupt: "false"}, nil,
			set{disrupt: "false"}},
		"both a user's": {set{down: "true", disrupt: "true"}, set{down: "true", disrupt: "true"}, nil,
			set{down: "true", disrupt: "true"}},
		"twice": {set{down: "true", downBy: "q", disrupt: "true", disruptBy: "q"},
			set{down: "true", downBy: "q", disrupt: "true", disruptBy: "q"}, nil, set{}},
		"a user has removed it": {set{downBy: "q"}, set{downBy: "q", disrupt: "true", disruptBy: "q"}, nil, set{}},
		"another request left it": {set{down: "true", downBy: "p"},
			set{down: "true", downBy: "q", disrupt: "true", disruptBy: "q"}, nil, set{}},
		"a user changes it": {nil, set{down: "true", downBy: "q", disrupt: "true", disruptBy: "q"},
			func(a set) { a[down] = "false" }, set{down: "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: maps.Clone(tt.given)}}
			c := fake.NewClientBuilder().WithObjects(node).Build()
			e := &Env{Client: c, Reader: c}
			if err := e.Protect(t.Context(), node, "q"); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(node.Annotations, tt.protected) {
				t.Errorf("protected: %v, want %v", node.Annotations, tt.protected)
			}
			if tt.meanwhile != nil {
				tt.meanwhile(node.Annotations)
				if err := c.Update(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Unprotect(t.Context(), node, func(by types.UID) bool { return by == "p" }); err != nil {
				t.Fatal(err)
			}
			if err := e.Release(t.Context(), node, "q"); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(node.Annotations, tt.after) {
				t.Errorf("released: %v, want %v", node.Annotations, tt.after)
			}
			if list := ProtectedBy(node); list != nil {
				t.Errorf("protected by %v", list)
			}
		})
	}
}

// What an earlier request has left is removed when another one claims the Node.
func TestClaimUnprotects(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		AnnotationScaleDownDisabled: "true", AnnotationScaleDownDisabledBy: "p", AnnotationDoNotDisrupt: "true",
	}}}
	c := fake.NewClientBuilder().WithObjects(node).Build()
	if err := (&Env{Client: c, Reader: c}).Claim(t.Context(), node, "q"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{AnnotationClaim: "q", AnnotationDoNotDisrupt: "true"}
	if !maps.Equal(node.Annotations, want) {
		t.Errorf("%v, want %v", node.Annotations, want)
	}
}
