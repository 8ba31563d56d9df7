package builds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/plan"
)

// Binary is a controller's executable and the points compiled into it.
type Binary struct {
	Path     string
	Manifest *wire.Manifest // nil: not instrumented
}

// Options say what Make builds.
type Options struct {
	Binaries     []Binary // of the suite's controllers, in order; nil: they are built
	ControlPlane string   // path of its executable; empty: it is built if it is needed
	NeedsCluster bool     // the control plane is needed to start a cluster, not only for controllers in it
	Portable     bool     // without cgo, for machines that may lack this one's C library
	Progress     progress.Listener
}

// Make builds the controllers and, if it is needed, the control plane; both may be in the cache already. It does not
// build what the options have.
func Make(ctx context.Context, suite *plan.Suite, o Options) (binaries []Binary, controlPlane string, err error) {
	err = phase(ctx, o.Progress, func() (err error) {
		binaries, controlPlane, err = makeAll(ctx, suite, o)
		return err
	})
	return binaries, controlPlane, err
}

// phase shows that something is being built. A mistake of the user is a *mistake.Error.
func phase(ctx context.Context, listener progress.Listener, do func() error) error {
	listener.Show(progress.Event{Time: time.Now(), Type: progress.Phase, Text: "build"})
	defer func() { listener.Show(progress.Event{Time: time.Now(), Type: progress.Built}) }()
	err := do()
	var input *instrumentation.InputError
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.As(err, &input):
		return &mistake.Error{Err: err}
	}
	return err
}

func makeAll(ctx context.Context, suite *plan.Suite, options Options) ([]Binary, string, error) {
	if err := checkBinaries(suite); err != nil {
		return nil, "", err
	}
	controlPlane := &instrumentation.Result{Binary: options.ControlPlane}
	isComponent := func(c plan.Controller) bool { return c.Build != nil && c.Build.ControlPlane != "" }
	binaries := slices.Clone(options.Binaries)
	group, groupCtx := errgroup.WithContext(ctx)
	var controllers sync.WaitGroup
	built := make(chan struct{})
	group.Go(func() error {
		if slices.ContainsFunc(suite.Controllers, isComponent) && options.Binaries == nil {
			// Their points are needed, so its manifest is needed.
		} else if !options.NeedsCluster || options.ControlPlane != "" {
			return nil
		}
		var err error
		controlPlane, err = instrumentation.BuildControlPlane(groupCtx, instrumentation.ControlPlaneConfig{
			KubernetesVersion: suite.Cluster.KubernetesVersion,
			After:             built,
			Progress:          building(options.Progress, "control plane"),
			Notice: func(text string) {
				options.Progress.Show(progress.Event{Time: time.Now(), Type: progress.Info, Text: text})
			},
		})
		if err != nil {
			return fmt.Errorf("build control plane: %w", err)
		}
		return nil
	})
	if options.Binaries == nil {
		binaries = make([]Binary, len(suite.Controllers))
		for i := range suite.Controllers {
			controllers.Add(1)
			group.Go(func() (err error) {
				defer controllers.Done()
				binaries[i], err = buildController(groupCtx, suite, &suite.Controllers[i], options.Portable,
					options.Progress)
				return err
			})
		}
	}
	controllers.Wait()
	close(built)
	if err := group.Wait(); err != nil {
		return nil, "", err
	}
	for i := range suite.Controllers {
		c := &suite.Controllers[i]
		if !isComponent(*c) || options.Binaries != nil {
			continue
		}
		// The multi-call binary runs the component that it is called as.
		path, err := component(controlPlane.Binary, c.Build.ControlPlane)
		if err != nil {
			return nil, "", fmt.Errorf("controller %q: %w", c.Name, err)
		}
		binaries[i] = Binary{Path: path, Manifest: &controlPlane.Manifest}
	}
	return binaries, controlPlane.Binary, nil
}

// buildController builds a controller's executable; for a control plane component it builds nothing.
func buildController(
	ctx context.Context, suite *plan.Suite, c *plan.Controller, portable bool, listener progress.Listener,
) (Binary, error) {
	if c.Build == nil {
		abs, err := filepath.Abs(plan.Beside(suite.File, c.Binary))
		return Binary{Path: abs}, err
	}
	if c.Build.ControlPlane != "" {
		return Binary{}, nil
	}
	config := Config(suite, c)
	config.Env, config.Progress = environment(c.Build, portable), building(listener, c.Name)
	result, err := instrumentation.Build(ctx, config)
	if err != nil {
		return Binary{}, fmt.Errorf("build controller %q: %w", c.Name, err)
	}
	return Binary{Path: result.Binary, Manifest: &result.Manifest}, nil
}

// Config returns how a controller of a suite is built whose source the suite names.
func Config(suite *plan.Suite, c *plan.Controller) instrumentation.BuildConfig {
	var calls []points.AnnotatedCall
	for _, a := range c.AnnotatedCalls {
		calls = append(calls, points.AnnotatedCall{Name: a.Name, Package: a.Package, Receiver: a.Receiver,
			Function: a.Function})
	}
	return instrumentation.BuildConfig{
		Dir: plan.Beside(suite.File, c.Build.Dir), Package: c.Build.Package, Tags: c.Build.Tags,
		LDFlags: c.Build.LDFlags, Env: c.Build.Env, Replace: c.Build.Replace, AnnotatedCalls: calls,
	}
}

// environment is that in which a controller is built.
func environment(b *plan.Build, portable bool) map[string]string {
	const cgo = "CGO_ENABLED"
	_, said := b.Env[cgo]
	if _, here := os.LookupEnv(cgo); said || here || !portable {
		return b.Env
	}
	env := maps.Clone(b.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[cgo] = "0"
	return env
}

// Build is one of a suite's builds: the suite as the build has it, and its executables.
type Build struct {
	Suite    *plan.Suite     // with the variant
	Binaries []Binary        // of its controllers, in order
	Paths    map[Path]string // see Located
}

// Set are the builds of a suite that sessions share. Each is made when it is needed for the first time.
type Set struct {
	mu       sync.Mutex
	portable bool // see Options
	listener progress.Listener
	known    map[string]*Build
}

// NewSet returns the builds of a suite, of which its own, with the name "", is known.
func NewSet(suite *plan.Suite, own []Binary, portable bool, listener progress.Listener) *Set {
	return &Set{
		portable: portable, listener: listener, known: map[string]*Build{"": {Suite: suite, Binaries: own}},
	}
}

// Known returns the builds of a suite that others have made.
func Known(suite *plan.Suite, own []Binary, others map[string]*Build) *Set {
	b := NewSet(suite, own, false, progress.Nobody)
	maps.Copy(b.known, others)
	return b
}

// Get returns a build, and makes it if it is not there yet. A mistake in the suite is a *mistake.Error.
func (b *Set) Get(ctx context.Context, name string) (*Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.known[name]; known != nil {
		return known, nil
	}
	own := b.known[""]
	suite, paths, err := Located(ctx, own.Suite, name)
	if err != nil {
		if ctx.Err() == nil {
			err = &mistake.Error{Err: err}
		}
		return nil, err
	}
	made := &Build{Suite: suite, Binaries: slices.Clone(own.Binaries), Paths: paths}
	if err := phase(ctx, b.listener, func() error {
		var group errgroup.Group
		for i := range suite.Controllers {
			c := &suite.Controllers[i]
			if c.Build == nil || c.Build.ControlPlane != "" {
				continue // the same in all builds
			}
			group.Go(func() (err error) {
				made.Binaries[i], err = buildController(ctx, suite, c, b.portable, b.listener)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("build %q: %w", name, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	b.known[name] = made
	return made, nil
}

// component returns a path that runs a component of the multi-call control plane binary, which runs the component that
// it is called as.
func component(binary, name string) (string, error) {
	link := filepath.Join(filepath.Dir(binary), name)
	// The link is in the cache, beside the binary; an existing one leads to the same binary.
	if err := os.Symlink(filepath.Base(binary), link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return link, nil
}

// checkBinaries refuses paths that are not executable files, before anything is built.
func checkBinaries(suite *plan.Suite) error {
	for _, c := range suite.Controllers {
		if c.Build == nil {
			if err := checkExecutable(suite, c.Name, "binary", c.Binary); err != nil {
				return err
			}
		}
		for _, image := range slices.Sorted(maps.Keys(c.Executables)) {
			if err := checkExecutable(suite, c.Name, "executables: "+image, c.Executables[image]); err != nil {
				return err
			}
		}
		for _, in := range slices.Sorted(maps.Keys(c.Files)) {
			if err := checkSize(suite, c.Name, in, c.Files[in]); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxImageFile is how large a file or directory of an image may be, in bytes: each start of a process gets a copy.
const maxImageFile = 100 << 20

// checkSize refuses files that a controller's image hardly has, such as all of a repository.
func checkSize(suite *plan.Suite, controller, in, file string) error {
	size, path := int64(0), plan.Beside(suite.File, file)
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if size += info.Size(); size > maxImageFile {
			return fmt.Errorf("%s has more than %d MB, and each process gets a copy: give only what the controller "+
				"reads", path, maxImageFile>>20)
		}
		return nil
	})
	if err != nil {
		return &instrumentation.InputError{
			Reason: fmt.Sprintf("%s: controller %q: files: %s: %v", suite.File, controller, in, err),
		}
	}
	return nil
}

// checkExecutable checks an executable that a field of a controller names.
func checkExecutable(suite *plan.Suite, controller, field, file string) error {
	path := plan.Beside(suite.File, file)
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is not an executable file", path)
	}
	if err != nil {
		return &instrumentation.InputError{
			Reason: fmt.Sprintf("%s: controller %q: %s: %v", suite.File, controller, field, err),
		}
	}
	return nil
}

// building returns what a build reports its progress to.
func building(l progress.Listener, target string) func(text string) {
	return func(text string) {
		l.Show(progress.Event{Time: time.Now(), Type: progress.Build, Target: target, Text: text})
	}
}
