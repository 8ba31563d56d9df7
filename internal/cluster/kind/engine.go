package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// engineTimeout limits calls of the engine that only ask for something.
const engineTimeout = 20 * time.Second

// EnvEngine names the engine to use, docker or podman, as it does for kind's own command.
const EnvEngine = "KIND_EXPERIMENTAL_PROVIDER"

const podman = "podman"

// client returns the command of the container engine: the one that EnvEngine names, otherwise docker, or podman where
// there is no docker.
func client() string {
	if name := os.Getenv(EnvEngine); name != "" {
		return name
	}
	if _, err := exec.LookPath("docker"); err != nil {
		if _, err := exec.LookPath(podman); err == nil {
			return podman
		}
	}
	return "docker"
}

// engine runs the engine's client and returns what it wrote. An error has the end of it.
func engine(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, client(), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		words := strings.TrimSpace(stderr.String())
		if words == "" {
			words = strings.TrimSpace(stdout.String())
		}
		return "", fmt.Errorf("%s %s: %w%s", client(), args[0], err, indent(lastLines(words, 15)))
	}
	return stdout.String(), nil
}

// CheckEngine returns an error that says what is missing if there is no container engine that kind can use from here.
func CheckEngine(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout, fmt.Errorf("no answer within %s", engineTimeout))
	defer cancel()
	const needs = "a cluster of type kind needs Docker, or Podman as root"
	ask := []string{"version", "--format", "{{.Server.Version}} {{.Server.Os}}"}
	switch client() {
	case "docker":
	case podman:
		ask = []string{"info", "--format", "{{.Host.Security.Rootless}}"}
	default:
		return fmt.Errorf("%s, and %s says %q", needs, EnvEngine, client())
	}
	out, err := engine(ctx, nil, ask...)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s, and there is no command %s in PATH", needs, client())
	case err != nil && isPodman(ctx):
		return fmt.Errorf("%s; the command docker is Podman here: set %s=podman", needs, EnvEngine)
	case err != nil:
		return fmt.Errorf("%s, and %s does not answer: %w", needs, client(), err)
	case client() == podman && strings.TrimSpace(out) == "true":
		// The networks of its containers are in a namespace of their own, where we cannot listen.
		return fmt.Errorf("%s, and this is Podman without root", needs)
	}
	return nil
}

// nodeDisk is what the node of a cluster with a few objects needs on the engine's disk: 550 MB were used with three API
// servers. With less, kubeadm waits for minutes and does not say for what.
const nodeDisk = 700 << 20

// checkDisk returns an error if the engine's disk has no room for a node.
func checkDisk(ctx context.Context) error {
	dir, err := engineDir(ctx)
	if err != nil {
		return err
	}
	if free := cluster.FreeSpace(dir); free >= 0 && free < nodeDisk {
		return fmt.Errorf("no space left for a node: %s has %d MB, and %d MB are needed; `%s system prune` removes "+
			"what %[4]s does not use", dir, free>>20, nodeDisk>>20, client())
	}
	return nil
}

// engineDir is the directory in which the engine keeps its containers.
func engineDir(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout, fmt.Errorf("no answer within %s", engineTimeout))
	defer cancel()
	field := "{{.DockerRootDir}}"
	if client() == podman {
		field = "{{.Store.GraphRoot}}"
	}
	out, err := engine(ctx, nil, "info", "--format", field)
	return strings.TrimSpace(out), err
}

// leastDisk is the space on the engine's disk with which etcd, the kubelet and containers still work.
const leastDisk = 50 << 20

// Ails says that the engine's disk is full.
func (c *Cluster) Ails(ctx context.Context) string {
	dir, err := engineDir(ctx)
	if err != nil {
		return "the container engine does not answer: " + err.Error()
	}
	return fullDisk(dir, cluster.FreeSpace(dir))
}

// fullDisk says that a directory's disk is full, given its free space, which is negative if it is unknown.
func fullDisk(dir string, free int64) string {
	if free < 0 || free >= leastDisk {
		return ""
	}
	return fmt.Sprintf("the disk of the container engine is full: %s has %d MB left", dir, free>>20)
}

// isPodman reports whether the command docker is Podman, as with Debian's podman-docker.
func isPodman(ctx context.Context) bool {
	out, err := engine(ctx, nil, "-v")
	return err == nil && client() == "docker" && strings.Contains(strings.ToLower(out), podman)
}

// checkImages returns an error that names the images that the engine does not have. Trommel pulls none.
func checkImages(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout, fmt.Errorf("no answer within %s", engineTimeout))
		_, err := engine(ctx, nil, "image", "inspect", "--format", "{{.Id}}", name)
		cancel()
		if err != nil && (strings.Contains(err.Error(), "No such image") ||
			strings.Contains(err.Error(), "image not known")) {
			err = fmt.Errorf("the container engine has no image %[1]s, and Trommel pulls none: build it, or "+
				"`%[2]s pull` it", name, client())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// saveImages writes images of the engine to an archive, and replaces an existing file.
func saveImages(ctx context.Context, archive string, names ...string) error {
	if err := os.Remove(archive); err != nil && !errors.Is(err, fs.ErrNotExist) { // Podman would refuse
		return err
	}
	args := []string{"save", "-o", archive}
	if client() == podman && len(names) > 1 {
		args = append(args, "--multi-image-archive")
	}
	_, err := engine(ctx, nil, append(args, names...)...)
	return err
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "\n\t" + strings.ReplaceAll(text, "\n", "\n\t")
}
