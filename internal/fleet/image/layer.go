package image

import (
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/trommel-dev/trommel/internal/layer"
)

// File is a file of a layer. Every user may read and execute it.
type File struct {
	Path  string // in the image, absolute
	Local string // the file that it is a copy of
	Data  []byte // its content, if it is not a copy
}

// packed is a compressed layer in a file of its own.
type packed struct {
	file   string
	is     ocispec.Descriptor
	diffID digest.Digest // of what is not compressed
}

// newLayer makes a layer in a new file in dir. The same files, in any order, make the same layer.
func newLayer(dir string, files []File) (l *packed, err error) {
	out, err := os.CreateTemp(dir, "trommel-layer-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	compressed, plain := sha256.New(), sha256.New()
	z, _ := gzip.NewWriterLevel(io.MultiWriter(out, compressed), gzip.BestSpeed) // the level is valid
	if err := write(io.MultiWriter(z, plain), files); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	size, err := out.Seek(0, io.SeekCurrent)
	return &packed{
		file: out.Name(), diffID: digest.NewDigest(digest.SHA256, plain),
		is: ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.NewDigest(digest.SHA256, compressed), Size: size,
		},
	}, err
}

// write writes an archive that does not depend on the order of the files.
func write(to io.Writer, files []File) error {
	var all []layer.File
	byPath := func(a, b File) int { return cmp.Compare(a.Path, b.Path) }
	for _, f := range slices.SortedFunc(slices.Values(files), byPath) {
		all = append(all, layer.File{Path: f.Path, Local: f.Local, Data: f.Data, Mode: 0o555})
	}
	return layer.Write(to, all)
}
