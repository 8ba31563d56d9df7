package examples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The same schedule makes the same choices, whatever else the machine does.
func TestTheSameScheduleMakesTheSameOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	times := 4
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		times = 50
	}
	suite, err := filepath.Abs(filepath.Join(database, "trommel.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	plans := filepath.Join(dir, "plans")
	if err := os.Mkdir(plans, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range times {
		text := fmt.Sprintf("testName: same-%02d\nsuite: %s\nworkload: create\n"+
			"schedule: {strategy: swarm, seed: 3}\n", i,
			suite)
		file := filepath.Join(plans, fmt.Sprintf("same-%02d.yaml", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out := runTrommel(t, buildTrommel(t), dir, 15*time.Minute, "-p", plans)
	if code != pass {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	records, err := filepath.Glob(filepath.Join(dir, "trommel-runs", "same-*"))
	if err != nil || len(records) != times {
		t.Fatalf("records %v, %v\n%s", records, err, out)
	}
	orders := map[string]int{}
	for _, r := range records {
		orders[choicesOf(t, r)]++
	}
	if len(orders) > 1 {
		for order, n := range orders {
			t.Logf("in %d runs:\n%s", n, order)
		}
		t.Errorf("%d runs with the same schedule have %d orders", times, len(orders))
	}
	for order := range orders {
		if n := strings.Count(order, "\n"); n < 20 {
			t.Errorf("there are only %d choices", n)
		}
	}
}

// choicesOf returns the choices of a run record, a line each: what was chosen of what.
func choicesOf(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "observations.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var b strings.Builder
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var event struct {
			Choice *struct {
				Stream  string
				Enabled []string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if c := event.Choice; c != nil {
			fmt.Fprintf(&b, "%s of %s\n", c.Stream, strings.Join(c.Enabled, ", "))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
