package fleet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

func TestArchivesThatAreNoRecords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header tar.Header
		want   string
	}{
		{"a path that leads out", tar.Header{Name: "../a", Typeflag: tar.TypeReg}, `has "../a", which does not belong`},
		{"an absolute path", tar.Header{Name: "/a", Typeflag: tar.TypeReg}, `has "/a", which does not belong`},
		{
			"a link", tar.Header{Name: "a", Linkname: "/etc", Typeflag: tar.TypeSymlink},
			`has "a", which does not belong`,
		},
		{"a large file", tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 11}, "the archive is too large"},
	} {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		w := tar.NewWriter(z)
		if err := w.WriteHeader(&tt.header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, tt.header.Size)); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
		err := unpackRecord(&out, filepath.Join(t.TempDir(), "record"), 10)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// Logs are left out of a record that is too large, and that is said.
func TestLargeRecord(t *testing.T) {
	dir := t.TempDir()
	w, err := record.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		w.Meta(record.Meta{Plan: "a"}), w.Findings(nil), w.Close(),
		os.WriteFile(w.LogFile("large.log"), make([]byte, 1<<20), record.FileMode),
		os.WriteFile(w.LogFile("small.log"), []byte("a"), record.FileMode),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	left, err := pack(&out, dir, 100_000, nil)
	if err != nil || len(left) != 1 || left[0] != "logs/large.log" {
		t.Errorf("left out: %q, %v", left, err)
	}
	to := filepath.Join(t.TempDir(), "record")
	if err := unpackRecord(&out, to, 1<<20); err != nil {
		t.Fatal(err)
	}
	if r, err := record.Open(to); err != nil || r.Meta.Plan != "a" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(to, "logs", "small.log")); err != nil {
		t.Error(err)
	}
	if _, err := pack(&out, dir, 10, nil); err == nil || !strings.Contains(err.Error(), "the record is too large") {
		t.Error(err)
	}
}
