package controllers

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A conflict does not hide what else went wrong.
func TestResult(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	conflict, forbidden := apierrors.NewConflict(pods, "p", nil), apierrors.NewForbidden(pods, "p", nil)
	outdated := errors.New("outdated")
	for _, tt := range []struct {
		name  string
		err   error
		again bool
		told  bool
	}{
		{name: "nothing"},
		{name: "a conflict", err: fmt.Errorf("write: %w", conflict), again: true},
		{name: "an outdated cache", err: outdated, again: true},
		{name: "both", err: errors.Join(conflict, errors.Join(outdated)), again: true},
		{name: "forbidden", err: forbidden, told: true},
		{name: "a conflict and forbidden", err: errors.Join(conflict, forbidden), told: true},
		{name: "forbidden, inside", err: errors.Join(errors.Join(outdated, conflict), errors.Join(forbidden)),
			told: true},
	} {
		result, err := Result(tt.err, outdated)
		if result.IsZero() == tt.again || (err != nil) != tt.told {
			t.Errorf("%s: %+v, %v", tt.name, result, err)
		}
	}
}
