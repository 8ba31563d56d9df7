package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// engineTimeout limits calls of the engine that only ask for something.
const engineTimeout = 20 * time.Second

// docker runs the engine's client and returns what it wrote. An error has the end of it.
func docker(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
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
		return "", fmt.Errorf("docker %s: %w%s", args[0], err, indent(lastLines(words, 15)))
	}
	return stdout.String(), nil
}

// CheckEngine returns an error that says what is missing if there is no container engine that kind can use from here.
func CheckEngine(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout, fmt.Errorf("no answer within %s", engineTimeout))
	defer cancel()
	_, err := docker(ctx, nil, "version", "--format", "{{.Server.Version}} {{.Server.Os}}")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("a cluster of type kind needs Docker, and there is no command docker in PATH")
	case err != nil:
		return fmt.Errorf("a cluster of type kind needs Docker, and its engine does not answer: %w", err)
	}
	return nil
}

// checkImages returns an error that names the images that the engine does not have. Trommel pulls none.
func checkImages(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout, fmt.Errorf("no answer within %s", engineTimeout))
		_, err := docker(ctx, nil, "image", "inspect", "--format", "{{.Id}}", name)
		cancel()
		if err != nil && strings.Contains(err.Error(), "No such image") {
			err = fmt.Errorf("the container engine has no image %s, and Trommel pulls none: build it, or "+
				"`docker pull` it", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
