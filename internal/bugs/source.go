package bugs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/buildcache"
)

// Sources gets the sources of bugs by git. They are kept in the cache of builds.
type Sources struct {
	// Mirror takes the place of https:// in the URLs of repositories, such as /srv/mirror/; empty: they are used as
	// they are.
	Mirror string
}

// Tree is a bug's source with its suite and plans. It must not be changed.
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
	return s.tree(ctx, b, b.Commit, "")
}

// GetFixed is Get for the source without the bug; nil: there is none.
func (s Sources) GetFixed(ctx context.Context, b *Bug) (*Tree, error) {
	switch {
	case !b.HasFix():
		return nil, nil
	case b.Fixed != "":
		return s.tree(ctx, b, b.Fixed, "")
	}
	return s.tree(ctx, b, b.Commit, b.Fix)
}

// tree returns the source at a commit with the files of the bug's folder, and with a patch of that folder; empty: none.
func (s Sources) tree(ctx context.Context, b *Bug, commit, patch string) (*Tree, error) {
	files, err := b.files()
	if err != nil {
		return nil, err
	}
	var text []byte
	if patch != "" {
		if text, err = os.ReadFile(filepath.Join(b.Dir, patch)); err != nil {
			return nil, err
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %q", b.Repository, commit, text)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%q %q", name, files[name])
	}
	name := fmt.Sprintf("%s-%x", b.Name, hash.Sum(nil)[:8])
	dir, err := buildcache.Source(ctx, name, func(dir string) error {
		if err := s.checkOut(ctx, dir, b.Repository, commit); err != nil {
			return fmt.Errorf("get %s: %w", b.Project, err)
		}
		if err := write(dir, files); err != nil || patch == "" {
			return err
		}
		return git(ctx, dir, bytes.NewReader(text), "apply", "--unidiff-zero")
	})
	if err != nil {
		return nil, err
	}
	return b.tree(dir)
}

// checkOut gets a commit into an empty directory.
func (s Sources) checkOut(ctx context.Context, dir, repository, commit string) error {
	if err := git(ctx, dir, nil, "init", "--quiet"); err != nil {
		return err
	}
	if err := s.fetch(ctx, dir, repository, commit); err != nil {
		return err
	}
	return git(ctx, dir, nil, "checkout", "--quiet", "--detach", commit)
}

// fetch gets a commit: alone if the server allows that, otherwise with all that is there.
func (s Sources) fetch(ctx context.Context, dir, repository, commit string) error {
	from := repository
	if rest, ok := strings.CutPrefix(repository, "https://"); ok && s.Mirror != "" {
		from = s.Mirror + rest
	}
	alone := git(ctx, dir, nil, "fetch", "--quiet", "--depth=1", from, commit)
	if alone == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := git(ctx, dir, nil, "fetch", "--quiet", "--tags", from, "+refs/*:refs/from/*"); err != nil {
		return errors.Join(alone, err)
	}
	if git(ctx, dir, nil, "cat-file", "-e", commit+"^{commit}") != nil {
		return fmt.Errorf("commit %s is not in %s", commit, from)
	}
	return nil
}

// files returns what is laid into the bug's source, by path: the shared files, and those of the bug's folder.
func (b *Bug) files() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range b.Shared {
		if err := readInto(all, filepath.Join(filepath.Dir(b.Dir), sharedDir, name)); err != nil {
			return nil, fmt.Errorf("files that %s shares: %w", b.Name, err)
		}
	}
	if err := readInto(all, b.Dir, File, ReportFile, b.Fix); err != nil {
		return nil, err
	}
	return all, nil
}

// readInto reads the files of a directory, by their path in it, without those to leave out.
func readInto(all map[string][]byte, dir string, leaveOut ...string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || slices.Contains(leaveOut, rel) {
			return err
		}
		all[rel], err = os.ReadFile(path)
		return err
	})
}

// write writes files into a directory.
func write(dir string, files map[string][]byte) error {
	for name, data := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
	return nil
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

func git(ctx context.Context, dir string, in io.Reader, args ...string) error {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir, c.Stdin = dir, in
	c.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w\n%s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
