package kind

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/trommel-dev/trommel/internal/cluster/dynamic"
	"github.com/trommel-dev/trommel/internal/layer"
)

// Paths in the images of programs.
const (
	launcherPath = "/trommel/launcher"
	programPath  = "/trommel/program"
)

// unprivileged is the user of programs that must not be root and whose pods name no user.
const unprivileged = 65532

// image is a container image of one layer without a base.
type image struct {
	names      []string
	files      []layer.File
	entrypoint []string
}

// pathVariable is the PATH of processes in our images.
const pathVariable = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// write writes the image as docker save does, to a new file.
func (i image) write(file string) (err error) {
	archive, err := os.CreateTemp(filepath.Dir(file), "layer-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(archive.Name()) }()
	defer archive.Close()
	sum := sha256.New()
	if err := layer.Write(io.MultiWriter(archive, sum), i.files); err != nil {
		return err
	}
	size, err := archive.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	diffID := hex.EncodeToString(sum.Sum(nil))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{pathVariable}, "Entrypoint": i.entrypoint},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + diffID}},
	})
	if err != nil {
		return err
	}
	configSum := sha256.Sum256(config)
	configName := hex.EncodeToString(configSum[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": i.names, "Layers": []string{diffID + "/layer.tar"},
	}})
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	add := func(name string, size int64, from io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(w, from)
		return err
	}
	err = errors.Join(
		add(configName, int64(len(config)), bytes.NewReader(config)),
		add(diffID+"/layer.tar", size, archive),
		add("manifest.json", int64(len(manifest)), bytes.NewReader(manifest)),
	)
	if err != nil {
		return err
	}
	return w.Close()
}

// programImage is the image in which a program runs, and its only name, which depends on its content: the program, the
// launcher, and what a program expects of any system.
func programImage(ctx context.Context, binary, launcher string) (image, error) {
	digest, err := digestFiles(binary, launcher)
	if err != nil {
		return image{}, err
	}
	i := image{
		names: []string{"trommel.dev/program:" + digest},
		files: []layer.File{
			{Path: launcherPath, Local: launcher, Mode: 0o755},
			{Path: programPath, Local: binary, Mode: 0o755},
			{Path: "/tmp", Dir: true, Mode: 0o1777},
			{Path: "/etc/passwd", Mode: 0o644, Data: fmt.Appendf(nil,
				"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n",
				unprivileged, unprivileged)},
			{Path: "/etc/group", Mode: 0o644, Data: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", unprivileged)},
		},
		entrypoint: []string{launcherPath, "--", programPath, path.Base(programPath)},
	}
	libraries, err := sharedLibraries(ctx, binary)
	if err != nil {
		return image{}, err
	}
	for _, l := range libraries {
		i.files = append(i.files, layer.File{Path: l, Local: l, Mode: 0o755})
	}
	if file := "/etc/ssl/certs/ca-certificates.crt"; exists(file) {
		i.files = append(i.files, layer.File{Path: file, Local: file, Mode: 0o644})
	}
	return i, nil
}

var libraryRE = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$`)

// sharedLibraries lists the files of this machine that a dynamically linked executable needs, as Go's are that use cgo.
func sharedLibraries(ctx context.Context, binary string) ([]string, error) {
	f, err := openExecutable(binary)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if loader, err := dynamic.LoaderOf(f); err != nil || loader == "" {
		return nil, err
	}
	text, err := exec.CommandContext(ctx, "ldd", binary).Output()
	if err != nil {
		return nil, fmt.Errorf("%s is linked dynamically, and ldd does not find its libraries (build it with "+
			"CGO_ENABLED=0): %w", binary, err)
	}
	var all []string
	for _, m := range libraryRE.FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	return all, nil
}

// openExecutable opens what is to run in a container. It refuses any other file: who creates a pod names it, and would
// read in the container what Trommel's user can read here.
func openExecutable(file string) (*elf.File, error) {
	const must = "%s runs in a container and must be an executable for Linux: %w"
	info, err := os.Stat(file)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("its mode is %s", info.Mode())
	}
	if err != nil {
		return nil, fmt.Errorf(must, file, err)
	}
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf(must, file, err)
	}
	return f, nil
}

// digestFiles returns a name for the content of files.
func digestFiles(files ...string) (string, error) {
	h := sha256.New()
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		n, err := io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		fmt.Fprintf(h, ":%d", n)
	}
	return hex.EncodeToString(h.Sum(nil))[:20], nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
