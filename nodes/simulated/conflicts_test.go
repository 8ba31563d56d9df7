package simulated

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A conflict does not hide what else is wrong.
func TestOnlyConflicts(t *testing.T) {
	node := schema.GroupResource{Resource: "nodes"}
	conflict, forbidden := apierrors.NewConflict(node, "n", nil), apierrors.NewForbidden(node, "n", nil)
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{conflict, true},
		{forbidden, false},
		{errors.Join(conflict, conflict), true},
		{errors.Join(conflict, forbidden), false},
		{errors.Join(forbidden, conflict), false},
		{fmt.Errorf("a node: %w", conflict), true},
		{errors.Join(errors.Join(conflict, forbidden), conflict), false},
	} {
		if got := onlyConflicts(tt.err); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}
}
