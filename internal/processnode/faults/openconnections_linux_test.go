package faults

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
)

func TestParseHexAddress(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"0100007F:1F90", "127.0.0.1:8080"},
		{"00000000000000000000000001000000:0050", "[::1]:80"},
		{"0000000000000000FFFF00000501A87F:01BB", "127.168.1.5:443"},
		{"", ""},
		{"0100007F", ""},
		{"01:0050", ""},
	} {
		got, ok := parseHexAddress(tt.text)
		if ok != (tt.want != "") || ok && got != netip.MustParseAddrPort(tt.want) {
			t.Errorf("%s: %v, %v, want %s", tt.text, got, ok, tt.want)
		}
	}
}

// TestEndConnections ends one of two connections of a child.
func TestEndConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var ours, theirs [2]net.Conn
	var files []*os.File
	for i := range ours {
		if theirs[i], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer theirs[i].Close()
		if ours[i], err = listener.Accept(); err != nil {
			t.Fatal(err)
		}
		defer ours[i].Close()
		f, err := theirs[i].(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = files
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	ended := theirs[0].LocalAddr().String()
	all, err := openConnections()
	if err != nil {
		t.Fatal(err)
	}
	if err := endConnections(all, []int{child.Process.Pid, 1 << 22}, func(c connection) bool {
		return c.local.String() == ended
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := ours[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := theirs[1].Write([]byte{1}); err != nil {
		t.Error(err)
	}
	if n, err := ours[1].Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the other connection: read %d, %v", n, err)
	}
}
