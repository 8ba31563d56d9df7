package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/layer"
)

// programIn is an image in which a program is, behind its launcher, and what the image that it was put onto says of its
// own program.
type programIn struct {
	name            string
	user            string
	entrypoint, cmd []string
}

// argv returns what the program of a container gets as its arguments, its name first, as the container's own would:
// what the container says counts more than what the image does.
func (p programIn) argv(c *corev1.Container, name string) []string {
	switch {
	case len(c.Command) > 0:
		return slices.Concat(c.Command, c.Args)
	case len(p.entrypoint) == 0:
		return append([]string{name}, c.Args...)
	case len(c.Args) > 0:
		return slices.Concat(p.entrypoint, c.Args)
	}
	return slices.Concat(p.entrypoint, p.cmd)
}

// putAlone writes an archive of an image that has the program and nothing that it does not need.
func putAlone(ctx context.Context, binary, launcher, archive string) (programIn, error) {
	i, err := programImage(ctx, binary, launcher)
	if err != nil {
		return programIn{}, err
	}
	return programIn{name: i.names[0]}, i.write(archive)
}

// putOnto writes an archive of an image of the engine with the program and its launcher put onto it. What else is in
// that image stays, as do its variables, its user and its directory. The engine keeps nothing of it.
func putOnto(ctx context.Context, base, binary, launcher, archive string) (made programIn, err error) {
	text, err := engine(ctx, nil, "image", "inspect", "--format", "{{json .Config}}", base)
	if err != nil {
		return programIn{}, err
	}
	var config struct {
		User            string
		Entrypoint, Cmd []string
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return programIn{}, fmt.Errorf("configuration of the image %s: %w", base, err)
	}
	// The container is never started.
	id, err := engine(ctx, nil, "create", "--entrypoint", launcherPath, base, "--")
	if err != nil {
		return programIn{}, err
	}
	id = strings.TrimSpace(id)
	made = programIn{
		name: "trommel.dev/program:" + cluster.RandomHex(8), user: config.User,
		entrypoint: config.Entrypoint, cmd: config.Cmd,
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		_, _ = engine(ctx, nil, "rm", "-f", "-v", id)
		_, _ = engine(ctx, nil, "image", "rm", made.name) // there is none after an error
	}()
	added, err := os.Create(archive)
	if err != nil {
		return programIn{}, err
	}
	defer added.Close()
	if err := layer.Write(added, []layer.File{
		{Path: launcherPath, Local: launcher, Mode: 0o755},
		{Path: programPath, Local: binary, Mode: 0o755},
	}); err != nil {
		return programIn{}, err
	}
	if _, err := added.Seek(0, io.SeekStart); err != nil {
		return programIn{}, err
	}
	if _, err := engine(ctx, added, "cp", "-", id+":/"); err != nil {
		return programIn{}, err
	}
	entrypoint := "ENTRYPOINT " + string(mustJSON([]string{launcherPath, "--", programPath}))
	if _, err := engine(ctx, nil, "commit", "--change", entrypoint, id, made.name); err != nil {
		return programIn{}, err
	}
	return made, saveImages(ctx, archive, made.name)
}
