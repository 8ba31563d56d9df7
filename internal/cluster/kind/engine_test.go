package kind

import (
	"strings"
	"testing"
)

func TestFullDisk(t *testing.T) {
	for free, want := range map[int64]string{
		-1: "", 0: "/d has 0 MB left", 3 << 20: "/d has 3 MB left", leastDisk: "", 1 << 40: "",
	} {
		if got := fullDisk("/d", free); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%d: %q", free, got)
		}
	}
}
