package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// image is a program that becomes an image.
type image struct {
	name string
	// module is the directory of the program's module, and program its package, both in the repository.
	module, program string
	// user that the program runs as, unless its pod says otherwise; empty: root.
	user string
}

// nonRoot is an unused user ID: the manifests name the same.
const nonRoot = "65532:65532"

var images = []image{
	{"trommel-chaos", ".", "./cmd/trommel-chaos", nonRoot},
	{"trommel-chaos-parent", "chaos/helm", "./cmd/trommel-chaos-parent", nonRoot},
	{"trommel-nodes", ".", "./cmd/trommel-nodes", nonRoot},
	{"trommel-injector", "chaos/linux", "./cmd/trommel-injector", ""},
}

// build compiles the program and returns its image. The same source makes the same image.
func (i image) build(ctx context.Context, root string, p *v1.Platform) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "trommel-images-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, i.name)
	// Without symbols the program is a third smaller; panics have their lines all the same.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-gcflags=all=-dwarf=false",
		"-ldflags=-s -w", "-o", binary, i.program)
	cmd.Dir = filepath.Join(root, i.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture, "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	content, err := layer(binary, i.name)
	if err != nil {
		return nil, err
	}
	made, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return nil, err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = p.OS, p.Architecture, p.Variant
	config.Config.Entrypoint = []string{"/" + i.name}
	config.Config.User = i.user
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.source":   "https://github.com/trommel-dev/trommel",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	return mutate.ConfigFile(made, config)
}

// layer has the program and a directory for temporary files, in which the injector says that it is ready.
func layer(binary, name string) (v1.Layer, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, entry := range []struct {
		tar.Header
		data []byte
	}{
		{tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(program))}, program},
	} {
		// Neither depends on when it is built.
		entry.ModTime = time.Unix(0, 0)
		if err := w.WriteHeader(&entry.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(entry.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	})
}

// indexOf joins the images of several platforms.
func indexOf(built []v1.Image, platforms []*v1.Platform) (v1.ImageIndex, error) {
	index := v1.ImageIndex(empty.Index)
	for n, made := range built {
		mediaType, err := made.MediaType()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: made, Descriptor: v1.Descriptor{MediaType: mediaType, Platform: platforms[n]},
		})
	}
	return index, nil
}
