package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTakeWarnings(t *testing.T) {
	var rest strings.Builder
	warnings := takeWarnings(strings.NewReader("# Warning: 'bases' is deprecated.\nother\n"+
		"# Warning: 'vars' is deprecated.\n# Warning: 'bases' is deprecated.\n# comment\nno end"), &rest)
	if diff := cmp.Diff([]string{"'bases' is deprecated.", "'vars' is deprecated."}, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("other\n# comment\nno end", rest.String()); diff != "" {
		t.Errorf("rest (-want +got):\n%s", diff)
	}
}
