package processnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/faults"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// program is how the processes of a container are started. It does not change between them.
type program struct {
	path    string   // of the executable
	argv    []string // with argv[0]
	env     []string
	workDir string
	logFile string
	mounts  []volumes.Mount
	files   *volumes.Files
	image   []imageFile // of the container's image; a volume hides them
	tmp     string      // directory of its /tmp; empty if the pod's spec mounts something there
	hooked  bool        // its executable has hooks in the standard library

	idle     bool // it has no program, and does nothing: see runsNothing
	timeless bool // what it does does not depend on the time

	readyFile string // on this machine; empty unless it is an injector that names one
	lastWords string // file on this machine in which a process without hooks may write its termination message
}

// command returns the command of one process, without its output.
func (p *program) command() *exec.Cmd {
	return &exec.Cmd{Path: p.path, Args: p.argv, Env: p.env, Dir: p.workDir}
}

// freshFiles creates the files of a new container: those of its image, an empty /tmp, the mount points of its volumes,
// no readiness file, no termination message.
func (p *program) freshFiles() error {
	if p.tmp != "" {
		if err := os.RemoveAll(p.tmp); err != nil {
			return err
		}
		if err := os.MkdirAll(p.tmp, 0o700); err != nil {
			return err
		}
	}
	for _, f := range p.image {
		if err := f.copy(); err != nil {
			return fmt.Errorf("file %s of its image: %w", f.path, err)
		}
	}
	if p.readyFile != "" {
		// That of an injector that was killed says nothing about the next one.
		if err := os.Remove(p.readyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if p.lastWords != "" {
		if err := os.MkdirAll(filepath.Dir(p.lastWords), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(p.lastWords, nil, 0o600); err != nil {
			return err
		}
	}
	if !p.hooked {
		return nil
	}
	return p.files.MakeMountPoints()
}

// formatEnv formats the environment. A process without hooks gets the container's own values with their mount paths
// replaced.
func (p *program) formatEnv(e *environment) []string {
	env := make([]string, 0, len(e.names))
	for _, name := range e.names {
		value := e.values[name]
		if !p.hooked && e.own[name] && !strings.HasPrefix(name, "TROMMEL_") {
			value = volumes.RewritePaths(value, p.mounts)
			e.values[name] = value
		}
		env = append(env, name+"="+value)
	}
	return env
}

// lookupEnv returns the value of an environment variable.
func (p *program) lookupEnv(name string) (string, bool) {
	for _, e := range p.env {
		if len(e) > len(name) && e[:len(name)] == name && e[len(name)] == '=' {
			return e[len(name)+1:], true
		}
	}
	return "", false
}

// prepare determines how the container's processes are started. Folders are those of the pod's volumes.
func (c *container) prepare(ctx context.Context, folders map[string]string) error {
	p := c.pod
	annotations := p.annotations()
	// All starts of the container append to one log, and so do those of the next pod with the same name.
	c.program.logFile = filepath.Join(p.node.config.LogDir,
		fmt.Sprintf("%s_%s_%s.log", p.namespace, p.name, c.spec.Name))
	c.program.timeless = annotations[cluster.AnnotationTimeless] == "true"
	c.program.workDir = annotations[cluster.AnnotationWorkDirPrefix+c.spec.Name]
	binary := annotations[cluster.AnnotationBinaryPrefix+c.spec.Name]
	if c.runsNothing(binary) {
		p.node.mu.Lock()
		defer p.node.mu.Unlock()
		c.program.idle = true
		return nil
	}
	home := filepath.Join(p.dir, "work", c.spec.Name)
	err := os.MkdirAll(home, 0o700)
	if err != nil {
		return err
	}
	if c.program.workDir == "" {
		c.program.workDir = home
		if binary == "" && c.spec.WorkingDir != "" {
			c.program.workDir = c.spec.WorkingDir
		}
	}
	if c.program.hooked, err = c.isHooked(binary); err != nil {
		return err
	}
	env, err := c.environment(ctx, home)
	if err != nil {
		return err
	}
	expandEnv := func(s string) string { return expand(s, env.lookup) }
	if c.program.mounts, err = p.volumes.Mounts(c.spec, folders, expandEnv); err != nil {
		return err
	}
	if c.program.image, err = c.imageFiles(annotations); err != nil {
		return err
	}
	for _, f := range c.program.image {
		c.program.mounts = append(c.program.mounts, volumes.Mount{Path: f.path, Local: f.local})
	}
	volumes.SortMounts(c.program.mounts)
	if err := c.findFiles(binary); err != nil {
		return err
	}
	if path := c.spec.TerminationMessagePath; path != "" && !c.program.hooked {
		c.program.lastWords = filepath.Join(p.dir, "termination", c.spec.Name)
		c.program.mounts = volumes.SortMounts(append(c.program.mounts,
			volumes.Mount{Path: filepath.Clean(path), Local: c.program.lastWords}))
	}
	var argv []string
	for _, s := range slices.Concat(c.spec.Command, c.spec.Args) {
		s = expandEnv(s)
		if !c.program.hooked {
			s = volumes.RewritePaths(s, c.program.mounts)
		}
		argv = append(argv, s)
	}
	if c.program.hooked {
		env.set(envPodFiles, c.program.files.Environment())
		page, err := p.faults.Page(c.spec.Name, filepath.Join(p.dir, "faults", c.spec.Name))
		if err != nil {
			return err
		}
		env.set(envPodFaults, page)
	}
	// Components of the control plane have the clock and the queues, too, and others do not look. An injector that is
	// the executable of a controller that was built for it has the clock.
	for _, variable := range c.pod.node.config.Keeper.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		env.set(name, value)
	}
	if !c.pod.isInjector() {
		env.set(wire.QueuesVariable, string(c.pod.node.queues))
	}
	c.program.env = c.program.formatEnv(env)
	if file := faults.ReadyFile(annotations); file != "" && c.pod.isInjector() {
		c.program.readyFile = volumes.RewritePaths(file, c.program.mounts)
	}
	return c.findExecutable(binary, argv, env)
}

// runsNothing reports whether a container beside the controller has no program. As in simulated pods, it counts as
// running, because most controllers do not need what is beside them, such as a proxy for metrics. They need what an
// init container does.
func (c *container) runsNothing(binary string) bool {
	return c.pod.controller != nil && binary == "" && len(c.spec.Command) == 0 && (!c.isInit || c.isSidecar())
}

// isHooked reports whether the container's executable has hooks in its standard library.
func (c *container) isHooked(binary string) (bool, error) {
	if c.pod.isInjector() {
		return false, nil // although our own executable mentions them
	}
	if binary == "" {
		if len(c.spec.Command) == 0 || !filepath.IsAbs(c.spec.Command[0]) {
			return false, nil
		}
		binary = c.spec.Command[0]
	}
	yes, err := c.pod.node.hooked.has(binary)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // starting it will fail
	}
	return yes, err
}

// findExecutable sets path and argv. A binary replaces the image: it is run instead of the command's first word, which
// remains argv[0].
func (c *container) findExecutable(binary string, argv []string, env *environment) error {
	set := func(path string, argv []string) error {
		c.pod.node.mu.Lock() // the pod's status has the path, and is written while the pod is prepared
		defer c.pod.node.mu.Unlock()
		c.program.path, c.program.argv = path, argv
		return nil
	}
	if binary != "" {
		if len(c.spec.Command) == 0 {
			argv = append([]string{binary}, argv...)
		}
		return set(binary, argv)
	}
	if len(c.spec.Command) == 0 {
		remedy := fmt.Sprintf("name one in the pod's annotation %s%s", cluster.AnnotationBinaryPrefix, c.spec.Name)
		if control := c.pod.controller; control != nil {
			remedy = fmt.Sprintf("name one with `executables:` of the controller %s in the suite", control.name)
		}
		return fmt.Errorf("has no command, and no executable is given for image %q: %s", c.spec.Image, remedy)
	}
	path, err := lookPath(argv[0], c.program.workDir, env.lookup)
	if err != nil {
		return err
	}
	return set(path, argv)
}

// findFiles determines where the container's files are on this machine.
func (c *container) findFiles(binary string) error {
	c.program.files = volumes.NewFiles(filepath.Join(c.pod.dir, "root", c.spec.Name))
	c.program.tmp = filepath.Join(c.pod.dir, "tmp", c.spec.Name)
	c.program.files.Add("/tmp", c.program.tmp)
	for _, m := range slices.Backward(c.program.mounts) {
		if m.Path == "/tmp" {
			c.program.tmp = ""
		}
		if err := c.program.files.Mount(m.Path, m.Local); err != nil {
			return fmt.Errorf("mount %s: %w", m.Path, err)
		}
	}
	// These paths are the machine's own, even below a mount.
	for _, own := range []string{c.pod.node.config.Dir, c.program.workDir, binary} {
		if own != "" {
			c.program.files.Add(own, own)
		}
	}
	return nil
}

// lookPath finds an executable in the container's own PATH.
func lookPath(name, dir string, lookup func(string) (string, bool)) (string, error) {
	if filepath.Base(name) != name {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	path, _ := lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("command %q is not in PATH", name)
}
