// Package image makes an image for the workers of a campaign, of files of this machine and without a base, and pushes
// it to a registry. The image is named by its digest. What the registry has already is not sent again.
package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/trommel-dev/trommel/internal/cluster/dynamic"
)

// Paths in images of workers.
const (
	// Executable is the entry point.
	Executable = "/trommel"
	// FilesDir is the directory with what workers need, each file by its digest.
	FilesDir = "/trommel-files"
)

// Arch is the architecture of images.
const Arch = runtime.GOARCH

// Image is one that is made and pushed, layer by layer.
type Image struct {
	to     *remote.Repository
	layers []*packed
	sent   sent
}

// sent is what an image consists of, in bytes.
type sent struct{ all, there int64 }

// parse reads the name of a repository.
func parse(name string) (registry.Reference, error) {
	ref, err := registry.ParseReference(name)
	switch host, _, _ := strings.Cut(name, "/"); {
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return ref, fmt.Errorf("%q must begin with a registry, such as registry.example/team/trommel or "+
			"docker.io/team/trommel", name)
	case err != nil:
		return ref, fmt.Errorf("%q is not a repository, such as registry.example/team/trommel", name)
	case ref.Reference != "" || strings.ContainsAny(name, "@"):
		return ref, fmt.Errorf("%q has a tag or a digest: leave it out, the image is named by its digest", name)
	}
	return ref, nil
}

// Check finds what is wrong with the name of a repository.
func Check(name string) error {
	_, err := parse(name)
	return err
}

// New returns an image without layers that is pushed to a repository, with the credentials of docker login. As with
// docker, a registry on this machine need not speak TLS.
func New(ctx context.Context, name string) (*Image, error) {
	ref, err := parse(name)
	if err != nil {
		return nil, err
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("the credentials of docker login: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	client := &auth.Client{
		Client: &http.Client{Transport: retry.NewTransport(transport)},
		Cache:  auth.NewCache(), Credential: credentials.Credential(store),
	}
	client.SetUserAgent("trommel")
	i := &Image{to: &remote.Repository{Client: client, Reference: ref}}
	if here(ref.Host()) {
		reg := &remote.Registry{RepositoryOptions: remote.RepositoryOptions{Client: client, Reference: ref}}
		i.to.PlainHTTP = errors.Is(reg.Ping(ctx), http.ErrSchemeMismatch)
	}
	return i, nil
}

// dialTimeout is how long a registry may take to be reached. It is tried six times.
const dialTimeout = 5 * time.Second

// here reports whether a registry is on this machine.
func here(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// AddExecutable adds a layer with the running executable as the entry point.
func (i *Image) AddExecutable(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("this trommel is for %s, and cannot run in an image for Linux", runtime.GOOS)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := Static(self); err != nil {
		return fmt.Errorf("this trommel cannot be in an image: %w; build it with `CGO_ENABLED=0 go install` or "+
			"`CGO_ENABLED=0 go build`", err)
	}
	return i.Add(ctx, File{Path: Executable, Local: self})
}

// Static returns an error if an executable needs libraries, which images do not have.
func Static(file string) error {
	loader, err := dynamic.Loader(file)
	if err == nil && loader != "" {
		err = fmt.Errorf("it is linked dynamically, and needs %s", loader)
	}
	return err
}

// Add adds a layer, and pushes it if the registry does not have it. Without files it adds no layer.
func (i *Image) Add(ctx context.Context, files ...File) error {
	if len(files) == 0 {
		return nil
	}
	l, err := newLayer(os.TempDir(), files)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(l.file) }()
	i.layers = append(i.layers, l)
	return i.push(ctx, l.is, func() error {
		f, err := os.Open(l.file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return i.to.Blobs().Push(ctx, l.is, f)
	})
}

// Name completes the image, and returns how it is named by its digest.
func (i *Image) Name(ctx context.Context) (string, error) {
	config := ocispec.Image{
		Platform: ocispec.Platform{Architecture: Arch, OS: "linux"},
		Config:   ocispec.ImageConfig{Entrypoint: []string{Executable}, User: "65532:65532"},
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
	}
	for _, l := range i.layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.diffID)
		manifest.Layers = append(manifest.Layers, l.is)
	}
	var err error
	if manifest.Config, err = i.pushJSON(ctx, ocispec.MediaTypeImageConfig, config); err != nil {
		return "", err
	}
	is, err := i.pushJSON(ctx, manifest.MediaType, manifest)
	if err != nil {
		return "", err
	}
	ref := i.to.Reference
	ref.Reference = is.Digest.String()
	return ref.String(), nil
}

// Sent says how large the image is so far, and how much of it the registry had.
func (i *Image) Sent() string {
	const mb = 1e6
	return fmt.Sprintf("%.1f MB, of which the registry had %.1f MB", float64(i.sent.all)/mb, float64(i.sent.there)/mb)
}

// pushJSON pushes a config or a manifest.
func (i *Image) pushJSON(ctx context.Context, mediaType string, what any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(what)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	is := content.NewDescriptorFromBytes(mediaType, data)
	return is, i.push(ctx, is, func() error { return i.to.Push(ctx, is, bytes.NewReader(data)) })
}

// tries is how often something is pushed; the registry's client repeats only what has no body.
const tries = 3

// push pushes something if the registry does not have it.
func (i *Image) push(ctx context.Context, is ocispec.Descriptor, send func() error) error {
	// One token is enough for all requests, also for those of other layers.
	ctx = auth.AppendRepositoryScope(ctx, i.to.Reference, auth.ActionPull, auth.ActionPush)
	there, err := i.to.Exists(ctx, is)
	for n := 0; err == nil && !there; n++ {
		if err = send(); err == nil {
			break
		}
		if final(err) || n+1 == tries {
			break
		}
		err = nil
		select {
		case <-time.After(time.Second << n):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return i.explain(err)
	}
	i.sent.all += is.Size
	if there {
		i.sent.there += is.Size
	}
	return nil
}

// final reports whether a registry has said no.
func final(err error) bool {
	var answer *errcode.ErrorResponse
	return errors.As(err, &answer) && answer.StatusCode < http.StatusInternalServerError ||
		errors.Is(err, auth.ErrBasicCredentialNotFound)
}

// explain says what can be done about an error.
func (i *Image) explain(err error) error {
	name := i.to.Reference.Registry + "/" + i.to.Reference.Repository
	var answer *errcode.ErrorResponse
	if errors.Is(err, auth.ErrBasicCredentialNotFound) || errors.As(err, &answer) &&
		(answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
		return fmt.Errorf("push to %s: the registry refuses it: `docker login %s`, as a user who may push there (%w)",
			name, i.to.Reference.Registry, err)
	}
	return fmt.Errorf("push to %s: %w", name, err)
}
