package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/trommel-dev/trommel/internal/testing/registrytest"
)

func TestMain(m *testing.M) {
	// The tests do not use the credentials of the user who runs them.
	dir, err := os.MkdirTemp("", "docker-")
	if err == nil {
		err = os.Setenv("DOCKER_CONFIG", dir)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// files are those of an image in layers.
func files(t *testing.T) [][]File {
	t.Helper()
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, bytes.Repeat([]byte("program "), 1<<16), 0o700); err != nil {
		t.Fatal(err)
	}
	return [][]File{
		{{Path: Executable, Local: large}},
		{{Path: FilesDir + "/b", Data: []byte("second")}, {Path: FilesDir + "/a", Data: []byte("first")}},
		{{Path: FilesDir + "/empty"}},
	}
}

func push(t *testing.T, name string, layers [][]File) (*Image, string, error) {
	t.Helper()
	i, err := New(t.Context(), name)
	if err != nil {
		return nil, "", err
	}
	for _, l := range append(layers, nil) { // without files there is no layer
		if err := i.Add(t.Context(), l...); err != nil {
			return nil, "", err
		}
	}
	is, err := i.Name(t.Context())
	return i, is, err
}

// unpack returns the content of the image's files, and the modes of all entries.
func unpack(t *testing.T, r *registrytest.Registry, m ocispec.Manifest) (files map[string]string, modes []string) {
	t.Helper()
	files = map[string]string{}
	for _, l := range m.Layers {
		z, err := gzip.NewReader(bytes.NewReader(r.Content(l.Digest.String())))
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewReader(z)
		for {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			modes = append(modes, h.FileInfo().Mode().String()+" "+h.Name)
			if h.Uid+h.Gid != 0 || h.ModTime.Unix() != 0 {
				t.Errorf("%s depends on who made it when: %+v", h.Name, h)
			}
			if h.Typeflag == tar.TypeReg {
				files["/"+h.Name] = string(data)
			}
		}
	}
	return files, modes
}

func TestPush(t *testing.T) {
	r := &registrytest.Registry{}
	name := registrytest.Start(t, r) + "/team/trommel"
	layers := files(t)
	made, is, err := push(t, name, layers)
	if err != nil {
		t.Fatal(err)
	}
	repository, digest, _ := strings.Cut(is, "@")
	if repository != name || r.Puts() != 5 { // three layers, a config and a manifest
		t.Errorf("%s was pushed", is)
	}
	if !strings.HasSuffix(made.Sent(), "MB, of which the registry had 0.0 MB") {
		t.Error(made.Sent())
	}
	var manifest ocispec.Manifest
	var config ocispec.Image
	if err := json.Unmarshal(r.Content(digest), &manifest); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(r.Content(manifest.Config.Digest.String()), &config); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/trommel"}) || config.OS != "linux" ||
		config.Architecture != runtime.GOARCH || len(config.RootFS.DiffIDs) != 3 {
		t.Errorf("%+v", config)
	}
	got, modes := unpack(t, r, manifest)
	want := map[string]string{
		"/trommel": strings.Repeat("program ", 1<<16), "/trommel-files/a": "first", "/trommel-files/b": "second",
		"/trommel-files/empty": "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
	wantModes := []string{
		"-r-xr-xr-x trommel", "drwxr-xr-x trommel-files/", "-r-xr-xr-x trommel-files/a", "-r-xr-xr-x trommel-files/b",
		"drwxr-xr-x trommel-files/", "-r-xr-xr-x trommel-files/empty",
	}
	if !slices.Equal(modes, wantModes) {
		t.Errorf("%q", modes)
	}

	// The same files are the same image.
	slices.Reverse(layers[1])
	made, again, err := push(t, name, layers)
	if err != nil || again != is || r.Puts() != 0 || made.sent.there != made.sent.all {
		t.Errorf("%s, %v: %+v", again, err, made.sent)
	}
	// Of another one only what is new is sent.
	layers[2][0].Data = []byte("new")
	if _, third, err := push(t, name, layers); err != nil || third == is || r.Puts() != 3 {
		t.Errorf("%s, %v", third, err)
	}
}

// A registry that fails now and then is asked again.
func TestPushAgain(t *testing.T) {
	r := &registrytest.Registry{}
	r.Fail(1)
	if _, _, err := push(t, registrytest.Start(t, r)+"/a", files(t)); err != nil {
		t.Error(err)
	}
}

func TestRegistryRefuses(t *testing.T) {
	r := &registrytest.Registry{User: "somebody", Password: "secret"}
	host := registrytest.Start(t, r)
	name := host + "/team/trommel"
	want := "push to " + name + ": the registry refuses it: `docker login " + host + "`, as a user who may push there"
	if _, _, err := push(t, name, files(t)); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	login := func(auth string) {
		dir := t.TempDir()
		t.Setenv("DOCKER_CONFIG", dir)
		err := os.WriteFile(filepath.Join(dir, "config.json"),
			[]byte(`{"auths": {"`+host+`": {"auth": "`+auth+`"}}}`), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	login("c29tZWJvZHk6b3RoZXI=") // another password
	if _, _, err := push(t, name, files(t)); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	login("c29tZWJvZHk6c2VjcmV0") // the right password
	if _, _, err := push(t, name, files(t)); err != nil {
		t.Error(err)
	}
	if _, _, err := push(t, "127.0.0.1:1/team/trommel", files(t)); err == nil ||
		!strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	const noRepository, noRegistry, tag = "is not a repository", "must begin with a registry", "has a tag or a digest"
	for name, want := range map[string]string{
		"registry.example/team/trommel": "", "localhost/trommel": "", "localhost:5000/trommel": "", "[::1]:5000/a": "",
		"docker.io/team/trommel": "",
		"team/trommel":           noRegistry, "trommel": noRegistry, "": noRegistry,
		"registry.example": noRepository, "registry.example/": noRepository, "registry.example/Team": noRepository,
		"https://registry.example/a": noRepository,
		"registry.example/a:1":       tag, "registry.example/a@sha256:" + strings.Repeat("0", 64): tag,
	} {
		err := Check(name)
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
