package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrite(t *testing.T) {
	local := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(local, []byte("it runs"), 0o600); err != nil {
		t.Fatal(err)
	}
	var to bytes.Buffer
	if err := Write(&to, []File{
		{Path: "/usr/bin/program", Local: local, Mode: 0o755},
		{Path: "/usr/bin/same", Link: "/usr/bin/program", Mode: 0o755},
		{Path: "/tmp", Dir: true, Mode: 0o1777},
		{Path: "/tmp/file", Data: []byte("text"), Mode: 0o644},
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&to); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || !h.ModTime.IsZero() && h.ModTime.Unix() != 0 {
			t.Errorf("%s: %v, %s", h.Name, err, h.ModTime)
		}
		got = append(got, fmt.Sprintf("%c %s%s %o %s", h.Typeflag, h.Name, h.Linkname, h.Mode, text))
	}
	want := []string{
		"5 usr/ 755 ", "5 usr/bin/ 755 ", "0 usr/bin/program 755 it runs", "1 usr/bin/sameusr/bin/program 755 ",
		"5 tmp/ 1777 ", "0 tmp/file 644 text",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := Write(io.Discard, []File{{Path: "/a", Local: filepath.Join(t.TempDir(), "none")}}); err == nil {
		t.Error("a file that is not there")
	}
}
