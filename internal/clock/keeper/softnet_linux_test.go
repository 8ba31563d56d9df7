//go:build amd64 || arm64

package keeper

import (
	"strings"
	"testing"
)

// A packet that the kernel has put off is found, whichever processor has it.
func TestBacklog(t *testing.T) {
	line := func(backlog string) string {
		return strings.Repeat("0119db5a ", 11) + backlog + " 00000000 00000000 00000000\n"
	}
	for stat, want := range map[string]bool{
		"":                                     false,
		line("00000000"):                       false,
		line("00000000") + line("00000010"):    true,
		line("0000000a") + line("00000000"):    true,
		strings.Repeat("0119db5a ", 11) + "\n": false, // Linux before 5.10
	} {
		if got := anyBacklog([]byte(stat)); got != want {
			t.Errorf("%q: %t", stat, got)
		}
	}
}

func TestSoftnetIsRead(t *testing.T) {
	var s softnet
	if s.delayed() {
		t.Error("the zero value sees packets")
	}
	s.open()
	defer s.close()
	if s.fd == 0 {
		t.Skip("this kernel has no /proc/net/softnet_stat")
	}
	for range 2 { // from the beginning each time
		n := len(s.data)
		for i := range s.data {
			s.data[i] = 0
		}
		s.delayed()
		if !strings.Contains(string(s.data[:n]), " ") {
			t.Error("nothing was read")
		}
	}
}
