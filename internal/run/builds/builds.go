// Package builds makes the executables of a suite: its controllers, and the control plane if it is needed. A suite may
// have several builds of its controllers; the source of one is a commit of its git repository, another directory, or a
// version of a module.
package builds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/plan"
)

// Of returns the suite as one of its builds has it, with absolute paths into the build's source; an empty name returns
// the suite itself. It changes neither the suite nor its repository: a commit is written to Trommel's cache. The error
// is [plan.Errors], with positions, if the suite is wrong.
func Of(ctx context.Context, suite *plan.Suite, name string) (*plan.Suite, error) {
	build, _, err := Located(ctx, suite, name)
	return build, err
}

// Path is one that a suite or its build names.
type Path struct {
	Name string `json:"name"`
	Own  bool   `json:"own,omitempty"` // the build itself names it
}

// Located is [Of], and says where the paths are in the build's source that the suite and the build name.
func Located(ctx context.Context, suite *plan.Suite, name string) (*plan.Suite, map[Path]string, error) {
	b := suite.Builds[name]
	var from source
	var err error
	switch {
	case b.Ref != "":
		from, err = ofRef(ctx, suite.File, b.Ref)
	case b.Module != "":
		from, err = ofModule(ctx, suite.File, b.Module)
	case b.Dir != "":
		from, err = ofDir(ctx, suite.File, b.Dir)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, suite.BuildError(name, field(b), err)
	}
	paths := map[Path]string{}
	build, err := suite.WithBuild(name, func(path string, own bool) (string, error) {
		at, err := from.locate(suite.File, path, own)
		paths[Path{path, own}] = at
		return at, err
	})
	return build, paths, err
}

// field is the one that says where a build's source is.
func field(b plan.SuiteBuild) string {
	switch {
	case b.Ref != "":
		return "ref"
	case b.Module != "":
		return "module"
	}
	return "dir"
}

// source is where a build's files are. The zero value is the suite's own source.
type source struct {
	name string // for messages
	dir  string // instead of root
	root string // above the suite
}

// locate returns where a path of the suite is in the source. What lies outside of root is the same in all sources. The
// build's own paths may also be beside the suite.
func (s source) locate(suiteFile, path string, own bool) (string, error) {
	beside, err := resolved(plan.Beside(suiteFile, path))
	if err != nil || s.dir == "" {
		return beside, err
	}
	rel, err := filepath.Rel(s.root, beside)
	if err != nil {
		return "", err
	}
	if !filepath.IsLocal(rel) {
		return beside, exists(beside)
	}
	there := filepath.Join(s.dir, rel)
	missing := exists(there)
	switch {
	case missing == nil:
		return there, nil
	case !errors.Is(missing, os.ErrNotExist):
		return "", missing
	case own && exists(beside) == nil:
		return beside, nil
	case own:
		return "", fmt.Errorf("%s is neither in %s nor beside the suite", path, s.name)
	}
	return "", fmt.Errorf("%s has no %s, which the suite names as %s: say with manifests or controllers of the build "+
		"what is there", s.name, filepath.ToSlash(rel), path)
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}

// resolved is an absolute path whose directories are not links, as git prints it. The file need not exist.
func resolved(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for rest, dir := "", abs; ; {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return abs, nil
		}
		rest, dir = filepath.Join(filepath.Base(dir), rest), up
	}
}

// ofRef is the source of a commit.
func ofRef(ctx context.Context, suiteFile, ref string) (source, error) {
	root, err := repository(ctx, suiteFile)
	if err != nil {
		return source{}, err
	}
	commit, err := git(ctx, root, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil {
		return source{}, fmt.Errorf("the repository %s has no commit %q (git fetch --tags gets those of its remote)",
			root, ref)
	}
	dir, err := buildcache.Source(ctx, commit, func(dir string) error {
		return export(ctx, root, commit, dir)
	})
	if err != nil {
		return source{}, fmt.Errorf("read commit %q: %w", ref, err)
	}
	return source{ref, dir, root}, nil
}

// repository is the top directory of the suite's git repository.
func repository(ctx context.Context, suiteFile string) (string, error) {
	dir, err := resolved(filepath.Dir(suiteFile))
	if err != nil {
		return "", err
	}
	root, err := git(ctx, dir, nil, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("the suite is in no git repository: %w", err)
	}
	return filepath.FromSlash(root), nil
}

// export writes the files of a commit into a directory. Unlike git archive it leaves none out; unlike git worktree it
// writes nothing to the repository: the index that it needs is beside the files, and removed.
func export(ctx context.Context, repository, commit, dir string) error {
	index := filepath.Join(dir, ".trommel-index")
	env := []string{"GIT_INDEX_FILE=" + index}
	plain := []string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "core.splitIndex=false"}
	if _, err := git(ctx, repository, env, append(plain, "read-tree", commit)...); err != nil {
		return err
	}
	plain = append(plain, "checkout-index", "--all", "--prefix="+dir+"/")
	if _, err := git(ctx, repository, env, plain...); err != nil {
		return err
	}
	return os.Remove(index)
}

// git runs git in a directory, with variables added to the environment, and returns what it prints.
func git(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	return output(ctx, dir, append(env, "GIT_OPTIONAL_LOCKS=0"), "git", args...)
}

func output(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(trouble.String()); text != "" {
			return out.String(), errors.New(text)
		}
		return out.String(), fmt.Errorf("%s: %w", program, err)
	}
	return strings.TrimSpace(out.String()), nil
}

// ofDir is the source in a directory: another checkout of the suite's repository, or another directory of its module.
func ofDir(ctx context.Context, suiteFile, name string) (s source, err error) {
	s.name = name
	if s.dir, err = resolved(plan.Beside(suiteFile, name)); err != nil {
		return s, err
	}
	switch {
	case exists(filepath.Join(s.dir, ".git")) == nil:
		s.root, err = repository(ctx, suiteFile)
	case exists(filepath.Join(s.dir, "go.mod")) == nil:
		s.root, err = module(suiteFile)
	default:
		err = fmt.Errorf("%s is neither the top of a git checkout nor the directory of a Go module; without ref, "+
			"dir and module a build is made from the suite's own source", name)
	}
	return s, err
}

// module is the directory of the Go module that the suite is in.
func module(suiteFile string) (string, error) {
	dir, err := resolved(filepath.Dir(suiteFile))
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if exists(filepath.Join(at, "go.mod")) == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("the suite is in no Go module: there is no go.mod in %s or above", dir)
		}
	}
}

// ofModule is the source of a module's version, which go downloads unless it has it.
func ofModule(ctx context.Context, suiteFile, name string) (source, error) {
	root, err := module(suiteFile)
	if err != nil {
		return source{}, err
	}
	out, err := output(ctx, root, []string{"GOWORK=off"}, "go", "mod", "download", "-json", name)
	var found struct{ Dir, Error string }
	if json.Unmarshal([]byte(out), &found) == nil && found.Error != "" {
		return source{}, errors.New(found.Error)
	}
	if err != nil {
		return source{}, err
	}
	return source{name, found.Dir, root}, nil
}
