// Package layer writes layers of container images.
package layer

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// File is a file in a layer: a copy of a local one, or its own content, or a directory, or a hard link.
type File struct {
	Path  string // in the image, absolute
	Local string // the file that it is a copy of
	Data  []byte // its content, if it is not a copy
	Dir   bool
	Link  string // the path of the file that it is
	Mode  int64
}

// Write writes an archive of files in the given order, with the directories that they are in. It does not depend on
// when and by whom it is written.
func Write(to io.Writer, files []File) error {
	w := tar.NewWriter(to)
	made := map[string]bool{"/": true, ".": true}
	for _, f := range files {
		if err := writeParents(w, path.Dir(f.Path), made); err != nil {
			return err
		}
		made[f.Path] = true
		if err := f.write(w); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return w.Close()
}

func writeParents(w *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	if err := writeParents(w, path.Dir(dir), made); err != nil {
		return err
	}
	return File{Path: dir, Dir: true, Mode: 0o755}.write(w)
}

func (f File) write(w *tar.Writer) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Size: int64(len(f.Data)),
	}
	switch {
	case f.Dir:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		return w.WriteHeader(header)
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeLink, strings.TrimPrefix(f.Link, "/")
		return w.WriteHeader(header)
	case f.Local == "":
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(f.Data)
		return err
	}
	local, err := os.Open(f.Local)
	if err != nil {
		return err
	}
	defer func() { _ = local.Close() }()
	info, err := local.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, local)
	return err
}
