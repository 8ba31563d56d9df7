package page

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// recordFiles are the files of a record, in the order in which FuzzRecord takes them.
var recordFiles = []string{record.MetaFile, record.FindingsFile, record.ObservationsFile, record.ActionsFile,
	record.HistoryFile, record.ProcessesFile}

// FuzzRecord opens records of others, as they come from a CI's artifacts, and draws all reports from them. What cannot
// be read is an error; nothing panics.
func FuzzRecord(f *testing.F) {
	for _, r := range runs() {
		f.Add(jsonOf(f, r.Meta), jsonOf(f, r.Findings), linesOf(f, r.Events), linesOf(f, r.Actions),
			linesOf(f, r.History), jsonOf(f, r.Processes))
	}
	f.Add([]byte("{}"), []byte("[{}]"), []byte("{}\n"), []byte("{}\n"), []byte("{}\n"), []byte("[{}]"))
	f.Add([]byte("null"), []byte("null"), []byte("null\n"), []byte("null\n"), []byte("null\n"), []byte("null"))
	dir := f.TempDir() // of this process, which tries one input at a time
	f.Fuzz(func(t *testing.T, meta, findings, observations, actions, history, processes []byte) {
		for i, data := range [][]byte{meta, findings, observations, actions, history, processes} {
			if err := os.WriteFile(filepath.Join(dir, recordFiles[i]), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := record.Open(dir)
		if err != nil {
			if !strings.Contains(err.Error(), dir) {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		all := []*record.Run{r}
		_ = report.Text(io.Discard, r)
		_ = report.Explain(io.Discard, r, &plan.Plan{})
		_ = HTML(io.Discard, r, nil, nil)
		_ = report.JUnit(io.Discard, all, report.JUnitOptions{})
		_ = report.Markdown(io.Discard, all)
		var out bytes.Buffer
		if err := report.JSON(&out, all); err == nil && !json.Valid(out.Bytes()) {
			t.Errorf("not JSON: %s", out.Bytes())
		}
	})
}

func jsonOf(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func linesOf[T any](t testing.TB, all []T) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, v := range all {
		b.Write(append(jsonOf(t, v), '\n'))
	}
	return b.Bytes()
}
