package fleet

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/trommel-dev/trommel/internal/buildinfo"
)

// digestOf names content.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

var validDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// blobs are what workers can fetch, by digest. They are compressed when they are first asked for.
type blobs struct {
	dir string // of the compressed ones

	mu    sync.Mutex
	known map[string]*blob
}

// blob is content in memory or in a file.
type blob struct {
	data []byte
	file string
	once sync.Once
	err  error // of compressing it
}

func newBlobs(dir string) *blobs { return &blobs{dir: dir, known: map[string]*blob{}} }

// add keeps data, and returns its digest.
func (b *blobs) add(data []byte) string {
	digest := digestOf(data)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[digest] == nil {
		b.known[digest] = &blob{data: data}
	}
	return digest
}

// addFile lets workers fetch a file, which must not change.
func (b *blobs) addFile(digest, file string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known[digest] == nil {
		b.known[digest] = &blob{file: file}
	}
}

// Content is what workers need: data, or a file.
type Content struct {
	Digest string
	Data   []byte
	File   string // empty: it is Data
}

// content returns a blob that there is.
func (b *blobs) content(digest string) Content {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Content{Digest: digest, Data: b.known[digest].data, File: b.known[digest].file}
}

// compressed returns the file with a compressed blob, and makes it when it is first asked for. The error is
// os.ErrNotExist if there is no such blob.
func (b *blobs) compressed(digest string) (string, error) {
	b.mu.Lock()
	found := b.known[digest]
	b.mu.Unlock()
	if found == nil {
		return "", os.ErrNotExist
	}
	file := filepath.Join(b.dir, digest+".gz")
	found.once.Do(func() {
		if _, err := os.Stat(file); err == nil {
			return // of the campaign before it was resumed
		}
		found.err = found.compress(file)
	})
	return file, found.err
}

func (b *blob) compress(file string) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(file), ".blob-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	z, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // the level is valid
	if b.file == "" {
		_, err = z.Write(b.data)
	} else {
		var in *os.File
		if in, err = os.Open(b.file); err == nil {
			_, err = io.Copy(z, in)
			err = errors.Join(err, in.Close())
		}
	}
	if err = errors.Join(err, z.Close(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}

// cache is where a worker keeps blobs, uncompressed, by digest. Several workers may share the directory.
type cache struct{ dir string }

func (c cache) path(digest string) string { return filepath.Join(c.dir, digest[:2], digest) }

// get returns the path of a blob, and fetches it if it is not there. What fetch writes is checked.
func (c cache) get(ctx context.Context, digest string, fetch func(context.Context, io.Writer) error) (string, error) {
	if !validDigest.MatchString(digest) {
		return "", fmt.Errorf("%q is not a digest", digest)
	}
	path := c.path(digest)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	out, err := os.CreateTemp(filepath.Dir(path), ".blob-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	hash := sha256.New()
	err = fetch(ctx, io.MultiWriter(out, hash))
	if err = errors.Join(err, out.Close()); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != digest {
		return "", fmt.Errorf("what was fetched has the digest %s, not %s", got, digest)
	}
	// The same file is an executable of one campaign and a plain file of another.
	if err := os.Chmod(out.Name(), 0o500); err != nil {
		return "", err
	}
	return path, os.Rename(out.Name(), path)
}

// store is where a worker has blobs from.
type store struct {
	cache cache
	files string // a directory that does not change, with blobs by digest; empty: none
	fetch func(ctx context.Context, digest string, to io.Writer) error
	say   func(text string)
}

// get returns the path of a blob. Lasting: it is in files.
func (s *store) get(ctx context.Context, digest string) (path string, lasting bool, err error) {
	if s.files != "" && validDigest.MatchString(digest) {
		path = filepath.Join(s.files, digest)
		switch is, err := buildinfo.FileDigest(path); {
		case err == nil && is == digest:
			return path, true, nil
		case err == nil:
			s.say(fmt.Sprintf("%s has the digest %s: it is not used", path, is))
		case !errors.Is(err, os.ErrNotExist):
			return "", false, err
		}
	}
	path, err = s.cache.get(ctx, digest, func(ctx context.Context, to io.Writer) error {
		return s.fetch(ctx, digest, to)
	})
	return path, false, err
}
