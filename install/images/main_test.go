package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const root = "../.."

// TestArchives builds the images, checks what is in the archives, and runs the programs.
func TestArchives(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--root", root, "-o", dir, "--registry", "example.org/me", "--tag", "v1"},
		&out); err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		t.Run(i.name, func(t *testing.T) {
			tag, err := name.NewTag("example.org/me/" + i.name + ":v1")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), tag.String()) {
				t.Errorf("the image's name is not told:\n%s", out.String())
			}
			path := filepath.Join(dir, fmt.Sprintf("%s-linux-%s.tar", i.name, runtime.GOARCH))
			built, err := tarball.ImageFromPath(path, &tag)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, i, built)
		})
	}
}

func checkImage(t *testing.T, i image, built v1.Image) {
	t.Helper()
	config, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH || config.Config.User != i.user ||
		len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/"+i.name {
		t.Errorf("wrong configuration: %+v", config)
	}
	files := map[string]*tar.Header{}
	program := filepath.Join(t.TempDir(), i.name)
	content := mutate.Extract(built)
	defer content.Close()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[strings.Trim(h.Name, "/")] = h
		if strings.Trim(h.Name, "/") == i.name {
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(program, data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tmp := files["tmp"]; len(files) != 2 || tmp == nil || tmp.Mode&0o7777 != 0o1777 {
		t.Errorf("the image has other files than the program and /tmp: %v", files)
	}
	binary, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static")
		}
	}
	if said, err := exec.Command(program, "--help").CombinedOutput(); err != nil ||
		!strings.Contains(string(said), "Usage:") {
		t.Errorf("--help: %v\n%s", err, said)
	}
}

// TestPush pushes to a registry on this machine.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--root", root, "--push", "--insecure", "--registry", host + "/me"},
		&out); err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		tag, err := name.NewTag(host+"/me/"+i.name+":"+release, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		pulled, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, i, pulled)
	}
}

// TestManifests checks that the manifests run the images that are built here.
func TestManifests(t *testing.T) {
	ours := regexp.MustCompile(`ghcr\.io/trommel-dev/([a-z-]+):` + regexp.QuoteMeta(release))
	found := map[string]bool{}
	for _, pattern := range []string{
		"chaos/config/manager/*.yaml", "install/chart/charts/trommel-chaos/values.yaml", "nodes/config/manager/*.yaml",
		"install/chart/charts/trommel-nodes/values.yaml",
	} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range ours.FindAllStringSubmatch(string(data), -1) {
				found[m[1]] = true
			}
		}
	}
	for _, i := range images {
		if !found[i.name] {
			t.Errorf("no manifest runs %s", i.name)
		}
		delete(found, i.name)
	}
	for name := range found {
		t.Errorf("nobody builds %s, which a manifest runs", name)
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"want linux/ARCHITECTURE", []string{"--platform", "windows/amd64"}},
		{"want linux/ARCHITECTURE", []string{"--platform", "linux"}},
		{"given twice", []string{"--platform", "linux/arm64,linux/arm64"}},
		{`no image "chaos" (there are trommel-chaos, `, []string{"chaos"}},
		{"repository can only contain", []string{"--registry", "Example Org"}},
		{"repository can only contain", []string{"--registry", "example.org/ME"}},
		{"tag can only contain", []string{"--tag", "a b"}},
	} {
		err := run(t.Context(), append(c.args, "-o", t.TempDir()), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: want an error with %q, got %v", c.args, c.want, err)
		}
	}
}
