package clusters

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/record"
)

// scripted is a cluster that records its calls. Package embedded tests resets on a real cluster.
type scripted struct {
	cluster.Cluster // nil: no other method is called
	told            []string
	resetErr        error
	noteErr         error
	certificatesErr error
	kept            cluster.Snapshot
}

func (s *scripted) Name() string                   { return "scripted" }
func (s *scripted) Lock() (func(), error)          { return func() { s.told = append(s.told, "unlock") }, nil }
func (s *scripted) Processes() cluster.ProcessNode { return scriptedNode{s: s} }

func (s *scripted) Close(context.Context) error {
	s.told = append(s.told, "close")
	return nil
}

func (s *scripted) TakeSnapshot(context.Context) (cluster.Snapshot, error) {
	s.told = append(s.told, "snapshot")
	if s.noteErr != nil {
		return nil, s.noteErr
	}
	return "taken", nil
}

func (s *scripted) WithCertificates(_ context.Context, b cluster.Snapshot) (cluster.Snapshot, error) {
	s.told = append(s.told, "certificates")
	return b.(string) + ", with certificates", s.certificatesErr
}

func (s *scripted) KeepSnapshot(b cluster.Snapshot) error {
	s.kept = b
	return nil
}

func (s *scripted) KeptSnapshot() (cluster.Snapshot, error) {
	if s.kept == nil {
		return nil, fs.ErrNotExist
	}
	return s.kept, nil
}

func (s *scripted) DropSnapshot() error { return s.KeepSnapshot(nil) }

func (s *scripted) NeedAPIServers(_ context.Context, names []string) error {
	for _, name := range names {
		s.told = append(s.told, "start "+name)
	}
	return nil
}

func (s *scripted) Reset(_ context.Context, to cluster.Snapshot) error {
	s.told = append(s.told, "reset to "+to.(string))
	return s.resetErr
}

type scriptedNode struct {
	cluster.ProcessNode
	s *scripted
}

func (n scriptedNode) Stop(context.Context, []types.UID) error {
	n.s.told = append(n.s.told, "stop")
	return nil
}

func quiet(string) {}

func TestOwnClusters(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		name     string
		fresh    bool
		resetErr error
		noteErr  error
		states   []string
		told     [][]string // of each cluster
	}{
		{
			"kept and reset", false, nil, nil, []string{record.ClusterFresh, record.ClusterReset, record.ClusterReset},
			[][]string{{"snapshot", "stop", "reset to taken", "stop", "reset to taken", "stop", "close"}},
		},
		{
			"a reset that fails", false, failed, nil, []string{record.ClusterFresh, record.ClusterFresh},
			[][]string{{"snapshot", "stop", "reset to taken", "close"}, {"snapshot", "stop", "close"}},
		},
		{
			"never at rest", false, nil, failed, []string{record.ClusterFresh, record.ClusterFresh},
			[][]string{{"snapshot", "close"}, {"snapshot", "close"}},
		},
		{
			"a fresh one each", true, nil, nil, []string{record.ClusterFresh, record.ClusterFresh},
			[][]string{{"close"}, {"close"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var started []*scripted
			o := &Own{Fresh: tt.fresh, Logger: slog.New(slog.DiscardHandler),
				Start: func(context.Context, Info, Need) (cluster.Cluster, error) {
					started = append(started, &scripted{resetErr: tt.resetErr, noteErr: tt.noteErr})
					return started[len(started)-1], nil
				}}
			for i, want := range tt.states {
				l, err := o.Acquire(t.Context(), quiet, Need{})
				if err != nil {
					t.Fatal(err)
				}
				if l.State != want {
					t.Errorf("run %d: %s, want %s", i+1, l.State, want)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(started) != len(tt.told) {
				t.Fatalf("%d clusters were started, want %d", len(started), len(tt.told))
			}
			for i, c := range started {
				if !slices.Equal(c.told, tt.told[i]) {
					t.Errorf("cluster %d: %q, want %q", i+1, c.told, tt.told[i])
				}
			}
		})
	}
}

// A source starts its cluster once before its first run, if runs share it.
func TestOwnClustersArePreparedOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fresh bool
		state string // of the first run's cluster
		told  []string
	}{
		{"kept", false, record.ClusterReset, []string{"snapshot", "stop", "reset to taken", "stop", "close"}},
		{"a fresh one each", true, record.ClusterFresh, []string{"close"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			var started []*scripted
			o := &Own{Fresh: tt.fresh, Logger: slog.New(slog.DiscardHandler),
				Start: func(context.Context, Info, Need) (cluster.Cluster, error) {
					started = append(started, &scripted{})
					return started[len(started)-1], nil
				}}
			for range 2 {
				if err := o.Prepare(ctx, quiet, false); err != nil {
					t.Fatal(err)
				}
			}
			l, err := o.Acquire(ctx, quiet, Need{})
			if err != nil {
				t.Fatal(err)
			}
			if l.State != tt.state {
				t.Errorf("%s, want %s", l.State, tt.state)
			}
			if err := errors.Join(l.Release(ctx), o.Close(ctx)); err != nil {
				t.Fatal(err)
			}
			if len(started) != 1 || !slices.Equal(started[0].told, tt.told) {
				t.Errorf("%d clusters, the first one %q, want %q", len(started), started[0].told, tt.told)
			}
		})
	}
}

// The first run of a session passes on what later runs use.
func TestOwnClustersArePrepared(t *testing.T) {
	for _, tt := range []struct {
		name            string
		certificatesErr error
		told            []string
	}{
		{"with certificates", nil, []string{"snapshot", "snapshot", "certificates", "stop",
			"reset to taken, with certificates", "stop", "close"}},
		{"without", errors.New("failed"), []string{"snapshot", "snapshot", "certificates", "stop",
			"reset to taken", "stop", "close"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			c := &scripted{certificatesErr: tt.certificatesErr}
			o := &Own{Logger: slog.New(slog.DiscardHandler),
				Start: func(context.Context, Info, Need) (cluster.Cluster, error) { return c, nil }}
			for i := range 2 {
				l, err := o.Acquire(ctx, quiet, Need{})
				if err != nil {
					t.Fatal(err)
				}
				if l.Prepared != (i > 0) {
					t.Errorf("run %d: prepared: %t", i+1, l.Prepared)
				}
				if i == 0 {
					l.KeepPrepared(ctx)
					l.KeepCertificates(ctx)
				} else if l.KeepPrepared != nil || l.KeepCertificates != nil {
					t.Error("a later run is asked to prepare the cluster again")
				}
				if err := l.Release(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.told, tt.told) {
				t.Errorf("%q, want %q", c.told, tt.told)
			}
		})
	}
}

// A cluster that is prepared for runs with one build is not for those with another one.
func TestOwnClustersArePreparedForEachBuild(t *testing.T) {
	c := &scripted{}
	o := &Own{Logger: slog.New(slog.DiscardHandler),
		Start: func(context.Context, Info, Need) (cluster.Cluster, error) { return c, nil }}
	for i, run := range []struct {
		build    string
		prepared bool
	}{{"", false}, {"old", false}, {"old", true}, {"", true}} {
		l, err := o.Acquire(t.Context(), quiet, Need{Build: run.build})
		if err != nil {
			t.Fatal(err)
		}
		if l.Prepared != run.prepared {
			t.Errorf("run %d: prepared: %t", i+1, l.Prepared)
		}
		if l.KeepPrepared != nil {
			l.KeepPrepared(t.Context())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.prepared) != 2 {
		t.Errorf("snapshots: %v", o.prepared)
	}
}

func TestSharedCluster(t *testing.T) {
	for _, tt := range []struct {
		name     string
		killed   bool  // the previous run
		resetErr error // of the reset after the run
		told     []string
		left     bool // the snapshot stays stored
	}{
		{"restored", false, nil, []string{"snapshot", "reset to taken", "close", "unlock"}, false},
		{"after a killed run", true, nil, []string{"reset to left", "reset to left", "close", "unlock"}, false},
		{
			"cannot be restored", false, errors.New("failed"),
			[]string{"snapshot", "reset to taken", "close", "unlock"}, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &scripted{}
			if tt.killed {
				c.kept = "left"
			}
			s := &Shared{func(context.Context) (cluster.Cluster, error) { return c, nil }}
			l, err := s.Acquire(t.Context(), quiet, Need{})
			if err != nil {
				t.Fatal(err)
			}
			if c.kept == nil {
				t.Error("a run that is killed now would leave no snapshot")
			}
			c.resetErr = tt.resetErr
			if err := l.Release(t.Context()); !errors.Is(err, tt.resetErr) {
				t.Errorf("got %v", err)
			}
			if !slices.Equal(c.told, tt.told) {
				t.Errorf("%q, want %q", c.told, tt.told)
			}
			if left := c.kept != nil; left != tt.left {
				t.Errorf("the snapshot is kept: %t, want %t", left, tt.left)
			}
		})
	}
	t.Run("never at rest", func(t *testing.T) {
		c := &scripted{noteErr: errors.New("failed")}
		s := &Shared{func(context.Context) (cluster.Cluster, error) { return c, nil }}
		if _, err := s.Acquire(t.Context(), quiet, Need{}); !errors.Is(err, c.noteErr) {
			t.Errorf("got %v", err)
		}
		if want := []string{"snapshot", "unlock", "close"}; !slices.Equal(c.told, want) {
			t.Errorf("%q, want %q", c.told, want)
		}
	})
}

// API servers that a later run needs see all changes of the reset before it.
func TestOwnClustersStartAPIServersBeforeTheReset(t *testing.T) {
	ctx := t.Context()
	c := &scripted{}
	var first Need
	o := &Own{Logger: slog.New(slog.DiscardHandler),
		Start: func(_ context.Context, _ Info, need Need) (cluster.Cluster, error) { first = need; return c, nil }}
	for _, servers := range [][]string{{"apiserver-1"}, {"apiserver-1", "apiserver-2"}} {
		l, err := o.Acquire(ctx, quiet, Need{APIServers: servers})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"apiserver-1"}; !slices.Equal(first.APIServers, want) {
		t.Errorf("the cluster was started with %q, want %q", first.APIServers, want)
	}
	want := []string{"snapshot", "stop", "start apiserver-1", "start apiserver-2", "reset to taken", "stop"}
	if !slices.Equal(c.told, want) {
		t.Errorf("%q, want %q", c.told, want)
	}
}
