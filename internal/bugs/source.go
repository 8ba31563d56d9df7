package bugs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Sources gets the sources of bugs by git, and keeps them.
type Sources struct {
	Dir string // where they are kept
	// Mirror takes the place of https:// in the URLs of repositories, such as /srv/mirror/; empty: they are used as they
	// are.
	Mirror string
}

// Tree is a bug's source with its suite and plans.
type Tree struct {
	Dir   string
	Suite string
	Plans []string
}

// Get returns the source that has the bug, with the files of the bug's folder. For a controller of Kubernetes that is
// the bug's folder. It blocks until git has got what is not there yet.
func (s Sources) Get(ctx context.Context, b *Bug) (*Tree, error) {
	if b.Repository == "" {
		return b.tree(b.Dir)
	}
	return s.tree(ctx, b, "", b.Commit)
}

// GetFixed is Get for the source without the bug; nil: there is none.
func (s Sources) GetFixed(ctx context.Context, b *Bug) (*Tree, error) {
	switch {
	case !b.HasFix():
		return nil, nil
	case b.Fixed != "":
		return s.tree(ctx, b, "-fixed", b.Fixed)
	}
	t, err := s.tree(ctx, b, "-fixed", b.Commit)
	if err != nil {
		return nil, err
	}
	patch, err := filepath.Abs(filepath.Join(b.Dir, b.Fix))
	if err != nil {
		return nil, err
	}
	return t, git(ctx, t.Dir, "apply", "--unidiff-zero", patch)
}

// tree checks out a commit into a directory for this bug, which has no other changes than the files of its folder.
func (s Sources) tree(ctx context.Context, b *Bug, suffix, commit string) (*Tree, error) {
	dir, err := filepath.Abs(filepath.Join(s.Dir, b.Name+suffix))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := git(ctx, dir, "init", "--quiet"); err != nil {
			return nil, err
		}
	}
	if !has(ctx, dir, commit) {
		if err := s.fetch(ctx, dir, b.Repository, commit); err != nil {
			return nil, fmt.Errorf("get %s: %w", b.Project, err)
		}
	}
	for _, args := range [][]string{
		{"checkout", "--quiet", "--force", "--detach", commit}, {"clean", "-fdxq"},
	} {
		if err := git(ctx, dir, args...); err != nil {
			return nil, err
		}
	}
	if err := b.addFiles(dir); err != nil {
		return nil, err
	}
	return b.tree(dir)
}

// fetch gets a commit: alone if the server allows that, otherwise with all that is there.
func (s Sources) fetch(ctx context.Context, dir, repository, commit string) error {
	from := repository
	if rest, ok := strings.CutPrefix(repository, "https://"); ok && s.Mirror != "" {
		from = s.Mirror + rest
	}
	alone := git(ctx, dir, "fetch", "--quiet", "--depth=1", from, commit)
	if alone == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := git(ctx, dir, "fetch", "--quiet", "--tags", from, "+refs/*:refs/from/*"); err != nil {
		return errors.Join(alone, err)
	}
	if !has(ctx, dir, commit) {
		return fmt.Errorf("commit %s is not in %s", commit, from)
	}
	return nil
}

// has reports whether a commit has been fetched.
func has(ctx context.Context, dir, commit string) bool {
	return git(ctx, dir, "cat-file", "-e", commit+"^{commit}") == nil
}

// addFiles copies the bug's files into its source.
func (b *Bug) addFiles(dir string) error {
	return filepath.WalkDir(b.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(b.Dir, path)
		if err != nil {
			return err
		}
		if rel == File || rel == b.Fix {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
}

// tree finds the suite and the plans in a directory.
func (b *Bug) tree(dir string) (*Tree, error) {
	t := &Tree{Dir: dir, Suite: filepath.Join(dir, b.Suite)}
	if _, err := os.Stat(t.Suite); err != nil {
		return nil, fmt.Errorf("the suite of %s: %w", b.Name, err)
	}
	for _, pattern := range b.Plans {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, fmt.Errorf("plans of %s: %q: %w", b.Name, pattern, err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("plans of %s: there is no file %q", b.Name, pattern)
		}
		t.Plans = append(t.Plans, files...)
	}
	return t, nil
}

func git(ctx context.Context, dir string, args ...string) error {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w\n%s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
