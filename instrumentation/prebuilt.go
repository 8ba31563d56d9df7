package instrumentation

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/download"
)

// EnvReleaseURL names the variable with the URL below which the archives of a release are, such as that of a mirror.
// Default: the release on GitHub.
const EnvReleaseURL = "TROMMEL_RELEASE_URL"

// EnvBuild names the variable that, unless it is empty, makes BuildControlPlane build from source in any case.
const EnvBuild = "TROMMEL_BUILD"

// packedFile is an archive in the cache, until it is unpacked.
const packedFile = "prebuilt.tar.gz"

const releasesURL = "https://github.com/trommel-dev/trommel/releases/download/"

// PrebuiltIndex lists the control planes that a release has as archives. The one in this directory is empty; the
// release's workflow fills it in before it builds trommel.
type PrebuiltIndex struct {
	Release       string                     `json:"release,omitempty"`       // such as v0.1.0
	ControlPlanes map[string]PrebuiltArchive `json:"controlPlanes,omitempty"` // by key
}

// PrebuiltArchive is a file of a release. It contains the executable of a control plane and its Result.
type PrebuiltArchive struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

//go:embed prebuilt.json
var embeddedIndex []byte

var prebuiltIndex atomic.Pointer[PrebuiltIndex]

func init() {
	if err := SetPrebuiltIndex(embeddedIndex); err != nil {
		panic(err) // a test reads it
	}
}

// SetPrebuiltIndex replaces the index of this binary, for tests of releases.
func SetPrebuiltIndex(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var index PrebuiltIndex
	if err := decoder.Decode(&index); err != nil {
		return fmt.Errorf("read the index of prebuilt control planes: %w", err)
	}
	prebuiltIndex.Store(&index)
	return nil
}

// url returns where an archive of the release is.
func (i *PrebuiltIndex) url(a PrebuiltArchive) string {
	base := cmp.Or(os.Getenv(EnvReleaseURL), releasesURL+i.Release)
	return strings.TrimSuffix(base, "/") + "/" + a.Name
}

// prebuilt fetches the control plane from a release and puts it where a build would. It returns nothing if the control
// plane must be built, and has then shown the user why, if the release should have had it. The caller holds the key's
// lock. Files of a build that was interrupted are neither used nor changed.
func (b *controlPlaneBuild) prebuilt(ctx context.Context, dir, binary string) (*Result, error) {
	index := prebuiltIndex.Load()
	if b.fromSource || len(index.ControlPlanes) == 0 {
		return nil, nil
	}
	archive, ok := index.ControlPlanes[b.key]
	if !ok {
		b.notice(fmt.Sprintf("release %s has no control plane of Kubernetes %s for %s: it is built from source, which "+
			"takes minutes", index.Release, b.version, b.platform))
		return nil, nil
	}
	result, err := b.fetch(ctx, index.url(archive), archive, dir, binary)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		b.notice(fmt.Sprintf("the prebuilt control plane cannot be used (%v): it is built from source, which takes "+
			"minutes", err))
		return nil, nil
	}
	return result, nil
}

func (b *controlPlaneBuild) fetch(
	ctx context.Context, url string, archive PrebuiltArchive, dir, binary string,
) (*Result, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := download.File{URL: url, Size: archive.Size, SHA256: archive.SHA256, Progress: func(done int64) {
		b.progress.phase(fmt.Sprintf("download %d of %d MB", done/1e6, archive.Size/1e6))
	}}
	b.progress.phase("download " + url)
	packed := filepath.Join(dir, packedFile)
	if err := file.To(ctx, packed); err != nil {
		return nil, err
	}
	defer os.Remove(packed)
	b.progress.phase("unpack")
	unpacked := binary + ".prebuilt"
	defer os.Remove(unpacked)
	result, err := unpack(packed, unpacked)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", url, err)
	}
	result.Binary, result.Prebuilt = binary, true
	if err := writeResult(dir, result); err != nil {
		return nil, err
	}
	if err := os.Rename(unpacked, binary); err != nil {
		return nil, err
	}
	buildcache.MarkChanged(dir)
	return result, nil
}

// unpack reads an archive that pack has written. It writes the executable to binary.
func unpack(packed, binary string) (*Result, error) {
	f, err := os.Open(packed)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var result *Result
	archive := tar.NewReader(z)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch header.Name {
		case resultFile:
			result = &Result{}
			err = json.NewDecoder(archive).Decode(result)
		case controlPlaneBinary:
			err = writeExecutable(binary, archive)
		default:
			err = errors.New("it is not expected")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	if _, err := os.Stat(binary); err != nil || result == nil {
		return nil, fmt.Errorf("%s or %s is missing", controlPlaneBinary, resultFile)
	}
	return result, nil
}

func writeExecutable(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// archiveName is that of a control plane's archive. It contains all that its key is made from, and the key.
func (b *controlPlaneBuild) archiveName() string {
	return fmt.Sprintf("trommel-controlplane-%s-%s-%s-%s.tar.gz", b.version, b.platform.os(), b.platform.arch(), b.key)
}

// PackControlPlane builds a control plane, unless it is in the cache, and writes it into an archive for a release. It
// returns the archive's path, whose name says what it contains.
func PackControlPlane(ctx context.Context, config ControlPlaneConfig, dir string) (string, error) {
	config.FromSource, config.Output = true, ""
	built, err := BuildControlPlane(ctx, config)
	if err != nil {
		return "", err
	}
	b, err := configured(config)
	if err != nil {
		return "", err
	}
	result := *built
	result.Binary, result.Cached = "", false
	result.Points = slices.Clone(built.Points)
	for i := range result.Points {
		// Where they were on this machine says nothing elsewhere.
		p := &result.Points[i]
		p.Path = path.Join(p.Module+"@"+p.Version, p.File)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	to := filepath.Join(dir, b.archiveName())
	var archive bytes.Buffer // some 40 MB
	if err := pack(&archive, &result, built.Binary); err != nil {
		return "", fmt.Errorf("pack %s: %w", to, err)
	}
	return to, atomicfile.Write(to, archive.Bytes(), 0o644)
}

// pack writes an archive. The same control plane gives the same archive.
func pack(to io.Writer, result *Result, binary string) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	f, err := os.Open(binary)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	archive := tar.NewWriter(z)
	for _, file := range []struct {
		header  tar.Header
		content io.Reader
	}{
		{tar.Header{Name: resultFile, Mode: 0o644, Size: int64(len(text))}, bytes.NewReader(text)},
		{tar.Header{Name: controlPlaneBinary, Mode: 0o755, Size: info.Size()}, f},
	} {
		if err := archive.WriteHeader(&file.header); err != nil {
			return err
		}
		if _, err := io.Copy(archive, file.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), z.Close())
}

// IndexControlPlanes returns the index of the archives in a directory, as a release's trommel contains it. There must
// be one of each of these versions of Kubernetes for each platform, made from the sources of this trommel.
func IndexControlPlanes(release, dir string, versions, platforms []string) ([]byte, error) {
	if !semver.IsValid(release) || semver.Canonical(release) != release {
		return nil, inputErrorf("release %q: want a version such as v0.1.0", release)
	}
	index := PrebuiltIndex{Release: release, ControlPlanes: map[string]PrebuiltArchive{}}
	for _, version := range versions {
		for _, p := range platforms {
			b, err := configured(ControlPlaneConfig{KubernetesVersion: version, Platform: p})
			if err != nil {
				return nil, err
			}
			data, err := os.ReadFile(filepath.Join(dir, b.archiveName()))
			if err != nil {
				return nil, fmt.Errorf("the control plane of Kubernetes %s for %s: %w", b.version, b.platform, err)
			}
			sum := sha256.Sum256(data)
			index.ControlPlanes[b.key] = PrebuiltArchive{Name: b.archiveName(), Size: int64(len(data)),
				SHA256: hex.EncodeToString(sum[:])}
		}
	}
	data, err := json.MarshalIndent(index, "", "  ")
	return append(data, '\n'), err
}
