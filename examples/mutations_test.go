package examples

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMutations finds bugs of Sieve's three kinds that patches put into the database operator, within ten minutes each
// and without a hint where they are. It finds none in the operator without a patch, whose known bugs are fixed. The
// first line of a patch describes its bug. The second one says what must be found, as a regular expression: something
// else is a false alarm.
//
// Some bugs hide behind what the operator does right, so one in fifteen may be missed.
func TestMutations(t *testing.T) { findMutations(t, 1) }

// TestMutationsByOrder is TestMutations when only the order of events and calls changes, and a fault at most.
func TestMutationsByOrder(t *testing.T) { findMutations(t, 4, "--pattern", "order") }

// findMutations looks for the bug of each patch by trommel test with these arguments. It allows for some that are
// missed.
func findMutations(t *testing.T, mayMiss int, args ...string) {
	t.Helper()
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("takes about an hour; set TROMMEL_TEST_LONG")
	}
	trommel := buildTrommel(t)
	patches, err := filepath.Glob("testdata/mutations/*.patch")
	if err != nil || len(patches) < 15 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	t.Run("none", func(t *testing.T) {
		if code, out := campaign(t, trommel, database, args...); code != pass {
			t.Errorf("exit code %d, want %d\n%s", code, pass, out)
		}
	})
	var missed, unplaced []string
	found := 0
	for _, patch := range patches {
		name := strings.TrimSuffix(filepath.Base(patch), ".patch")
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			finds := whatToFind(t, patch)
			code, out := campaign(t, trommel, mutant(t, patch), args...)
			_, bugs, _ := strings.Cut("\n"+out, "\nbugs\n")
			t.Logf("exit code %d after %s\n%s", code, time.Since(began).Round(time.Second), bugs)
			switch code {
			case bug:
				if others := notFoundBy(finds, bugs); len(others) > 0 {
					t.Errorf("not what the patch puts in (%s):\n%s", finds, strings.Join(others, "\n"))
				}
				if found++; !namesPlaceOf(t, patch, bugs) {
					unplaced = append(unplaced, name)
				}
			case pass:
				missed = append(missed, name)
			default:
				t.Errorf("%s", out)
			}
		})
	}
	if len(missed) > mayMiss {
		t.Errorf("%d of %d bugs were missed: %s", len(missed), len(patches), strings.Join(missed, ", "))
	}
	// Where what is missing was left out, the summary has no line for it.
	t.Logf("the summary names a place near the patch for %d of %d bugs, but not for %s", found-len(unplaced), found,
		strings.Join(unplaced, ", "))
	if len(unplaced) > found/2 {
		t.Error("that are too few")
	}
}

// near is how many lines from a change a place may be that leads to it.
const near = 10

var (
	patchedFile = regexp.MustCompile(`^\+\+\+ [^/]+/(\S+)`)
	patchedHunk = regexp.MustCompile(`^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@`)
	placeNamed  = regexp.MustCompile(`([\w./-]+\.go):(\d+) `)
)

// namesPlaceOf reports whether bugs name a line of source that is in a hunk of a patch, or near it.
func namesPlaceOf(t *testing.T, patch, bugs string) bool {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	bugs, _, _ = strings.Cut(bugs, "\nnot ") // run, tested, confirmed
	file := ""
	for line := range strings.Lines(string(text)) {
		if m := patchedFile.FindStringSubmatch(line); m != nil {
			file = m[1]
		}
		m := patchedHunk.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		from := number(m[1])
		to := from + number(cmp.Or(m[2], "1"))
		for _, place := range placeNamed.FindAllStringSubmatch(bugs, -1) {
			if at := number(place[2]); place[1] == file && at >= from-near && at <= to+near {
				return true
			}
		}
	}
	return false
}

func TestPlacesNearAPatch(t *testing.T) {
	const patch = "testdata/mutations/stale-claims.patch"
	for text, want := range map[string]bool{
		"     written by database-operator/controller/finalize.go:45 (*Reconciler).f, called by x.go:1 g\n": true,
		"     written by x.go:1 g, called by database-operator/controller/finalize.go:24 (*Reconciler).f\n": true,
		"     written by database-operator/controller/finalize.go:60 (*Reconciler).f\n":                     false,
		"     written by database-operator/controller/statefulset.go:35 (*Reconciler).f\n":                  false,
		"     x\nnot run\n     written by database-operator/controller/finalize.go:35 (*Reconciler).f\n":    false,
		"no bugs": false,
	} {
		if got := namesPlaceOf(t, patch, text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// whatToFind is what the finding of a patch must be like.
func whatToFind(t *testing.T, patch string) *regexp.Regexp {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(text), "\n", 3)
	pattern, ok := strings.CutPrefix(lines[1], "Finds: ")
	if !ok {
		t.Fatalf("the second line of %s does not say what it finds", patch)
	}
	return regexp.MustCompile(pattern)
}

// group begins the lines about a group of bugs.
var group = regexp.MustCompile(`(?m)^  \d+\. `)

// notFoundBy returns the groups of bugs of a campaign's summary that say nothing of what was looked for.
func notFoundBy(finds *regexp.Regexp, bugs string) []string {
	bugs, _, _ = strings.Cut(bugs, "\nnot ") // run, tested, confirmed
	var others []string
	starts := group.FindAllStringIndex(bugs, -1)
	for i, at := range starts {
		end := len(bugs)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		if text := bugs[at[0]:end]; !finds.MatchString(text) {
			others = append(others, text)
		}
	}
	if len(starts) == 0 {
		others = append(others, "no bugs in the summary")
	}
	return others
}

// campaign tests the variant of a database operator whose known bugs are fixed, until it finds a bug, with these
// further arguments. It returns the exit code and the output.
func campaign(t *testing.T, trommel, example string, args ...string) (int, string) {
	t.Helper()
	dir := t.TempDir()
	all := []string{"test", "-c", example, "--variant", "fixed", "--fail-fast", "--budget", "10m", "--dir",
		filepath.Join(dir, "campaign"), "--baseline", filepath.Join(dir, "baselines")}
	code, out := runTrommel(t, trommel, ".", 40*time.Minute, append(all, args...)...)
	return code, string(out)
}

// mutant copies the database operator, applies the patch to the copy, and returns its directory.
func mutant(t *testing.T, patch string) string {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"cp", "-r", "go.mod", "go.sum", database, dir},
		{"patch", "--quiet", "-p1", "-d", dir, "-i", absolute},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return filepath.Join(dir, filepath.Base(database))
}

func TestGroupsOfBugsThatAreNotTheMutations(t *testing.T) {
	const claims = `  1. baseline: volume claim default/data-db-0 of database default/db is marked for deletion
     baseline: volume claim default/data-db-1 of database default/db is marked for deletion
     recreate-stale-74 (3 of 3 runs): database-operator is restarted at an API server that shows the past
`
	const falseAlarm = `  2. baseline: StatefulSet default/db of the living database default/db was deleted
     recreate-stale-75 (3 of 3 runs): database-operator is restarted at an API server that shows the past
`
	finds := whatToFind(t, "testdata/mutations/stale-claims.patch")
	if others := notFoundBy(finds, claims+"not run\n  3 plans\n"); len(others) > 0 {
		t.Errorf("%q", others)
	}
	if others := notFoundBy(finds, claims+falseAlarm+"inconclusive\n  plan\nnot run\n"); len(others) != 1 ||
		!strings.HasPrefix(others[0], "  2. baseline: StatefulSet") {
		t.Errorf("%q", others)
	}
	if others := notFoundBy(finds, ""); len(others) != 1 {
		t.Errorf("%q", others)
	}
}
