package fleet

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/record"
)

// maxRecord is how many bytes of a record a worker sends at most, before they are compressed. Logs are left out first.
const maxRecord = 512 << 20

// pack writes a run record as a compressed archive. It returns what it has left out: by which, and because a record is
// larger than most bytes. The files of a record are regular ones.
func pack(w io.Writer, dir string, most int64, without func(path string) bool) (left []string, err error) {
	type entry struct {
		path string
		info fs.FileInfo
	}
	var all []entry
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		all = append(all, entry{filepath.ToSlash(rel), info})
		return err
	})
	if err != nil {
		return nil, err
	}
	logs := func(e entry) int {
		if in, _ := filepath.Match(record.LogsDir+"/*", e.path); in {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b entry) int { return logs(a) - logs(b) })
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	t := tar.NewWriter(z)
	for _, e := range all {
		if without != nil && without(e.path) {
			left = append(left, e.path)
			continue
		}
		if most -= e.info.Size(); most < 0 {
			if logs(e) == 0 {
				return nil, fmt.Errorf("the record is too large: %s alone has %d MB", e.path, e.info.Size()>>20)
			}
			left = append(left, e.path)
			most += e.info.Size()
			continue
		}
		if err := packFile(t, filepath.Join(dir, filepath.FromSlash(e.path)), e.path, e.info); err != nil {
			return nil, err
		}
	}
	return left, errors.Join(t.Close(), z.Close())
}

func packFile(t *tar.Writer, file, name string, info fs.FileInfo) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: int64(record.FileMode), ModTime: info.ModTime(),
	}); err != nil {
		return err
	}
	_, err = io.CopyN(t, f, info.Size())
	return err
}

// unpackRecord writes the files of an archive below dir, which it creates. It takes regular files with local names
// only, and at most that many bytes.
func unpackRecord(r io.Reader, dir string, most int64) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	t := tar.NewReader(z)
	if err := os.MkdirAll(filepath.Join(dir, record.LogsDir), record.DirMode); err != nil {
		return err
	}
	for {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg || !filepath.IsLocal(filepath.FromSlash(h.Name)):
			return fmt.Errorf("the archive has %q, which does not belong into a record", h.Name)
		}
		if most -= h.Size; most < 0 {
			return errors.New("the archive is too large")
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), record.DirMode); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, record.FileMode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, t)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
