package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDropWarnings(t *testing.T) {
	var rest strings.Builder
	dropWarnings(strings.NewReader("# Warning: 'bases' is deprecated.\nother\n"+
		"# Warning: 'vars' is deprecated.\n# comment\nno end"), &rest)
	if diff := cmp.Diff("other\n# comment\nno end", rest.String()); diff != "" {
		t.Errorf("rest (-want +got):\n%s", diff)
	}
}
