package logs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/record"
)

// ran is a process node with the processes of controllers.
type ran map[string][]cluster.Process

func (r ran) Status(_ context.Context, controller string) ([]cluster.Process, error) {
	return r[controller], nil
}

// logged is a process node whose processes have logs, by pod, and a control plane with one log.
type logged struct {
	ran
	text         map[string]string
	controlPlane string
}

func (l *logged) OpenLog(p cluster.Process) (io.ReadCloser, error) {
	text, ok := l.text[p.Pod]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func (l *logged) Logs(context.Context) ([]cluster.Log, error) {
	open := func(at int64) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(l.controlPlane[at:])), nil
	}
	return []cluster.Log{{Name: "etcd.log", Size: int64(len(l.controlPlane)), Open: open}}, nil
}

func (l *logged) in(t *testing.T) *Set {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, record.LogsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Set{Dir: dir, ControlPlane: l, Node: l, Controllers: []string{"db", "web"},
		Logger: slog.New(slog.DiscardHandler)}
}

func TestLogs(t *testing.T) {
	of := func(controller, pod string) cluster.Process {
		return cluster.Process{Controller: controller, Pod: pod, Container: "manager"}
	}
	node := &logged{
		ran: ran{"db": {of("db", "db-0"), of("db", "db-0")}, "web": {of("web", "web-0")}},
		text: map[string]string{
			"db-0": "starting\nE0101 00:00:00.000000 1 a.go:1] \"no\" n=1\n" +
				"E0101 00:00:00.000000 1 a.go:1] \"no\" n=2\n",
		},
		controlPlane: "another run\n",
	}
	l := node.in(t)
	if err := l.Skip(t.Context()); err != nil {
		t.Fatal(err)
	}
	node.controlPlane += "this run\n"
	if err := l.Becalm(t.Context()); err != nil {
		t.Fatal(err)
	}
	size := int64(len(node.text["db-0"]))
	node.text["db-0"] += "the end\n"
	all, err := l.Processes(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if got := all[0]; got.LogFile != "logs/db-db-0-manager.log" || got.LogCalm != size {
		t.Errorf("%+v; the log had %d bytes", got, size)
	}
	if err := l.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"etcd.log": "this run\n", "db-db-0-manager.log": node.text["db-0"]} {
		if data, err := os.ReadFile(l.path("logs/" + name)); err != nil || string(data) != want {
			t.Errorf("%s: %q (%v), want %q", name, data, err, want)
		}
	}
	if got := l.Tail(node.ran["db"][0]); !strings.HasPrefix(got, "starting\n") ||
		!strings.HasSuffix(got, "the end") {
		t.Errorf("tail %q", got)
	}
	want := "the last error of db (2 similar ones), in logs/db-db-0-manager.log:\n" +
		"  E0101 00:00:00.000000 1 a.go:1] \"no\" n=2"
	if got := l.LastErrors(t.Context()); len(got) != 1 || got[0] != want {
		t.Errorf("last errors %q, want %q", got, want)
	}
	node.ran["db"][1].Unready = "status 503"
	if got := l.Tails(t.Context()); !strings.HasPrefix(got, "\nthe readiness probe of db's pod db-0 fails: status 503"+
		"\nthe end of db's log:\nstarting\n") ||
		!strings.Contains(got, "\nthe end of web's log:\n") {
		t.Errorf("tails %q", got)
	}
}

// A cluster may have neither logs nor processes.
func TestLogsOfAPlainCluster(t *testing.T) {
	l := &Set{Dir: t.TempDir(), Controllers: []string{"db"}}
	all, err := l.Processes(t.Context())
	err = errors.Join(err, l.Skip(t.Context()), l.Becalm(t.Context()), l.Keep(t.Context()))
	if err != nil || all != nil {
		t.Error(all, err)
	}
}
