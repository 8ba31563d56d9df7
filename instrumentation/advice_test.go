package instrumentation

import (
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	for _, tt := range []struct{ message, want string }{
		{"error obtaining VCS status: exit status 128\n\tUse -buildvcs=false to disable VCS stamping.",
			"safe.directory"},
		{"fatal: detected dubious ownership in repository at '/r'", "safe.directory"},
		{
			"main.go:2:8: vbom.ml/util@v0.0.0: reading https://proxy.golang.org/vbom.ml/util/@v/v0.0.0.zip: " +
				"403 Forbidden", "a `replace` in go.mod",
		},
		{`go: vbom.ml/util@v0.0.0: unrecognized import path "vbom.ml/util"`, "a `replace` in go.mod"},
		{
			"fatal: could not read Username for 'https://github.com': terminal prompts disabled\n" +
				"Confirm the import path was entered correctly.", "GOPRIVATE",
		},
		{"dial tcp: lookup proxy.golang.org: no such host", "GOPROXY"},
		{"main.go:3:1: syntax error", ""},
	} {
		message, want := tt.message, tt.want
		got := withAdvice(message)
		rest, ok := strings.CutPrefix(got, message)
		if !ok || want == "" && rest != "" || !strings.Contains(rest, want) {
			t.Errorf("%s\nadvice %q, want %q", message, rest, want)
		}
	}
}
