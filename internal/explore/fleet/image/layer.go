package image

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// File is a file of a layer. Anybody may read and execute it.
type File struct {
	Path  string // in the image, absolute
	Local string // the file that it is a copy of
	Data  []byte // its content, if it is no copy
}

// layer is a compressed layer in a file of its own.
type layer struct {
	file   string
	is     ocispec.Descriptor
	diffID digest.Digest // of what is not compressed
}

// newLayer makes a layer in a new file in dir. The same files, in any order, make the same layer.
func newLayer(dir string, files []File) (l *layer, err error) {
	out, err := os.CreateTemp(dir, "trommel-layer-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	packed, plain := sha256.New(), sha256.New()
	z, _ := gzip.NewWriterLevel(io.MultiWriter(out, packed), gzip.BestSpeed) // the level is valid
	if err := write(io.MultiWriter(z, plain), files); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	size, err := out.Seek(0, io.SeekCurrent)
	return &layer{
		file: out.Name(), diffID: digest.NewDigest(digest.SHA256, plain),
		is: ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.NewDigest(digest.SHA256, packed), Size: size,
		},
	}, err
}

// write writes an archive that does not depend on when and by whom it is written.
func write(to io.Writer, files []File) error {
	w := tar.NewWriter(to)
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	made := map[string]bool{"/": true}
	for _, f := range files {
		var parents []string
		for dir := path.Dir(f.Path); !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			parents = append(parents, dir)
		}
		for _, dir := range slices.Backward(parents) {
			if err := w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755,
			}); err != nil {
				return err
			}
		}
		if err := f.write(w); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return w.Close()
}

func (f *File) write(w *tar.Writer) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"), Mode: 0o555, Size: int64(len(f.Data)),
	}
	if f.Local == "" {
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
