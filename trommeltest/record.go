package trommeltest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trommel-dev/trommel/internal/confirm"
)

var (
	keep = flag.Bool("trommel.keep", false, "keep the records of runs of tests that pass")
	dir  = flag.String("trommel.dir", ".trommel",
		"`directory` for the records of runs, relative to the package's directory")
	parallel = flag.Int("trommel.parallel", 0,
		"at most so many `clusters` at once (default: one for each core, if there is memory for them)")
)

// used are the directories of the tests that this process has run: what else is there is of earlier ones.
var used struct {
	sync.Mutex
	dirs map[string]bool
}

// newRecordDir returns a directory for the record of a plan's run, named after the test. It does not exist yet. What
// earlier processes have left of that test is removed. At the end of the test the record is removed too, unless the
// test has failed: then the log says where it is.
func newRecordDir(tb testing.TB, name string) (string, error) {
	tb.Helper()
	base, err := recordsDir(tb)
	if err != nil {
		return "", err
	}
	test := filepath.Join(base, fileName(tb.Name()))
	used.Lock()
	defer used.Unlock()
	if used.dirs == nil {
		used.dirs = map[string]bool{}
	}
	if !used.dirs[test] {
		used.dirs[test] = true
		if err := os.RemoveAll(test); err != nil {
			return "", fmt.Errorf("remove an old record: %w", err)
		}
	}
	record := filepath.Join(test, fileName(name))
	for n := 2; used.dirs[record]; n++ {
		record = filepath.Join(test, fmt.Sprintf("%s-%d", fileName(name), n))
	}
	used.dirs[record] = true
	tb.Cleanup(func() {
		_, err := os.Stat(record)
		switch {
		case err != nil: // it could not be begun
		case tb.Failed():
			tb.Log(commands(record))
		case *keep:
			tb.Logf("the record of the run is in %s", record)
		default:
			for _, run := range []string{record, record + confirm.WithoutActionsSuffix} {
				if err := os.RemoveAll(run); err != nil {
					tb.Logf("trommeltest: %v", err)
				}
			}
			_ = os.Remove(test) // if it is empty
		}
	})
	return record, nil
}

// recordsDir makes the directory for all records. In a package whose directory cannot be written to, such as one in the
// module cache, that is a temporary one.
func recordsDir(tb testing.TB) (string, error) {
	base, err := filepath.Abs(*dir)
	if err != nil {
		return "", err
	}
	err = os.MkdirAll(base, 0o755)
	if err == nil {
		// Records should not be committed.
		err = os.WriteFile(filepath.Join(base, ".gitignore"), []byte("*\n"), 0o644)
	}
	if errors.Is(err, os.ErrPermission) {
		tb.Logf("trommeltest: records go to a temporary directory: %v", err)
		return filepath.Join(os.TempDir(), fmt.Sprintf("trommel-records-%d", os.Getuid())), nil
	}
	return base, err
}
