package processnode

import "testing"

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for _, tt := range []struct{ in, want, reason string }{
		{in: "", want: ""},
		{in: "plain", want: "plain"},
		{in: "$(A)", want: "1"},
		{in: "x$(A)y$(A)z", want: "x1y1z"},
		{in: "$(B)", want: "$(A)", reason: "values are not expanded again"},
		{in: "[$(EMPTY)]", want: "[]"},
		{in: "$(MISSING)", want: "$(MISSING)", reason: "what is not defined stays"},
		{in: "$$(A)", want: "$(A)", reason: "$$ is a dollar"},
		{in: "$$$(A)", want: "$1"},
		{in: "$A ${A} $", want: "$A ${A} $", reason: "that is a shell's business"},
		{in: "$(A", want: "$(A"},
	} {
		if got := expand(tt.in, lookup); got != tt.want {
			t.Errorf("expand(%q) = %q, want %q %s", tt.in, got, tt.want, tt.reason)
		}
	}
}

func TestRewritePaths(t *testing.T) {
	// The longest first, as findMounts sorts them.
	mounts := []mount{{"/etc/config/sub", "/l/sub"}, {"/etc/config", "/l/config"}, {"/tmp", "/l/tmp"}}
	for _, tt := range []struct{ in, want, reason string }{
		{in: "/etc/config", want: "/l/config"},
		{in: "/etc/config/file.yaml", want: "/l/config/file.yaml"},
		{in: "--config=/etc/config/a,/tmp/b:/tmp", want: "--config=/l/config/a,/l/tmp/b:/l/tmp"},
		{in: "/etc/config/sub/x", want: "/l/sub/x", reason: "the deepest mount wins"},
		{in: "/etc/config2", want: "/etc/config2", reason: "another directory"},
		{in: "/etc/config.d/x", want: "/etc/config.d/x", reason: "another directory"},
		{in: "/var/tmp/x", want: "/var/tmp/x", reason: "a mount path within a path"},
		{in: "cat '/tmp/x' && ls /tmp", want: "cat '/l/tmp/x' && ls /l/tmp"},
		{in: "https://host/tmp", want: "https://host/tmp", reason: "a URL's path"},
		{in: "", want: ""},
	} {
		if got := rewritePaths(tt.in, mounts); got != tt.want {
			t.Errorf("rewritePaths(%q) = %q, want %q %s", tt.in, got, tt.want, tt.reason)
		}
	}
}
