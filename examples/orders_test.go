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

// The same schedule makes the same choices until the workload ends, whatever else the machine does. docs/orders.md says
// how often it does not; so one run of four may differ, and two of fifty.
func TestTheSameScheduleMakesTheSameOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	times, differ := 4, 1
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		times, differ = 50, 2
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
			"schedule: {strategy: swarm, seed: 3}\n", i, suite)
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
	most := 0
	for _, n := range orders {
		most = max(most, n)
	}
	if most < times-differ {
		for order, n := range orders {
			t.Logf("in %d runs:\n%s", n, order)
		}
		t.Errorf("%d of %d runs with the same schedule have the same order", most, times)
	}
	for order := range orders {
		if n := strings.Count(order, "\n"); n < 20 {
			t.Errorf("there are only %d choices", n)
		}
	}
}

// choicesOf returns the choices of a run record until the workload's last step, a line each.
func choicesOf(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "observations.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []string
	end := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var event struct {
			Choice *struct{ Stream string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if c := event.Choice; c != nil {
			all = append(all, c.Stream+"\n")
			if c.Stream == "workload" {
				end = len(all)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all[:end], "")
}
