package trommeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/report/display"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
)

// clusters are those of this process.
var clusters pool

// pool has the sessions whose clusters the tests of a package share, at most as many as the machine can serve. A
// session is used by one run at a time. An idle one is closed when another one needs its place.
type pool struct {
	mu    sync.Mutex
	limit int // 0: not known yet
	all   []*session
	built map[string]run.Options // by key: what the first session of that kind has built
	freed chan struct{}          // closed when a session becomes idle or goes away
}

// session is a session for plans of one suite and variant.
type session struct {
	key     string
	session *run.Session
	relay   *relay
	busy    bool
	used    time.Time
}

// acquire returns a session for the suite, for exclusive use until release. It waits until there is a place for one.
func (p *pool) acquire(
	ctx context.Context, tb testing.TB, suite *plan.Suite, variant string, fresh bool,
) (*session, error) {
	key := fmt.Sprintf("%s\x00%s\x00%t\x00%s", suite.File, variant, fresh, suite.Text())
	for {
		s, wait, err := p.take(key)
		if err != nil {
			return nil, err
		}
		switch {
		case wait != nil:
			select {
			case <-wait:
			case <-ctx.Done():
				return nil, errors.New("waiting until other tests are done with their clusters")
			}
		case s.key != key: // it must make room
			if err := s.session.Close(context.WithoutCancel(ctx)); err != nil {
				tb.Logf("trommeltest: %v", err)
			}
			p.remove(s)
		case s.session == nil:
			if err := p.open(ctx, tb, s, suite, variant, fresh); err != nil {
				p.remove(s)
				return nil, err
			}
			return s, nil
		default:
			s.relay.to(tb)
			return s, nil
		}
	}
}

// take returns a session that is now busy: one of that kind, which is new if it is not open, or an idle one of another
// kind that the caller must close and remove. If there is none, it returns a channel to wait for.
func (p *pool) take(key string) (*session, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit == 0 {
		limit, err := campaign.Parallel(*parallel)
		if err != nil {
			return nil, nil, fmt.Errorf("-trommel.parallel=%d: %w", *parallel, err)
		}
		p.limit, p.built, p.freed = limit, map[string]run.Options{}, make(chan struct{})
	}
	var idle *session
	for _, s := range p.all {
		switch {
		case s.busy:
		case s.key == key:
			s.busy = true
			return s, nil, nil
		case idle == nil || s.used.Before(idle.used):
			idle = s
		}
	}
	if len(p.all) < p.limit {
		s := &session{key: key, busy: true}
		p.all = append(p.all, s)
		return s, nil, nil
	}
	if idle != nil {
		idle.busy = true
		return idle, nil, nil
	}
	return nil, p.freed, nil
}

// open opens a new session.
func (p *pool) open(
	ctx context.Context, tb testing.TB, s *session, suite *plan.Suite, variant string, fresh bool,
) error {
	p.mu.Lock()
	options := p.built[s.key]
	p.mu.Unlock()
	s.relay = &relay{}
	s.relay.to(tb)
	console := display.NewConsole(s.relay, display.Options{})
	s.relay.console = console
	options.Variant, options.Fresh, options.Version = variant, fresh, buildinfo.Version()
	options.Injector = injectorCommand()
	options.Progress = s.relay
	options.Logger = slog.New(slog.NewTextHandler(always{s.relay}, &slog.HandlerOptions{Level: slog.LevelError}))
	opened, err := run.Open(ctx, suite, options)
	if err != nil {
		if last := s.relay.last(); last != "" && ctx.Err() != nil {
			err = fmt.Errorf("%w (%s)", err, last)
		}
		return err
	}
	s.session = opened
	var built run.Options
	built.Binaries, built.ControlPlane = opened.Built()
	p.mu.Lock()
	p.built[s.key] = built
	p.mu.Unlock()
	return nil
}

// release makes a session available to others.
func (p *pool) release(s *session) {
	s.relay.to(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy, s.used = false, time.Now()
	p.tell()
}

func (p *pool) remove(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(other *session) bool { return other == s })
	p.tell()
}

// tell wakes those who wait. The caller holds the lock.
func (p *pool) tell() {
	close(p.freed)
	p.freed = make(chan struct{})
}

// close closes all sessions. No test may run.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.all {
		if s.session != nil {
			errs = append(errs, s.session.Close(context.Background()))
		}
	}
	p.all = nil
	return errors.Join(errs...)
}

// Main runs the tests of a package, and then stops the clusters that they have shared:
//
//	func TestMain(m *testing.M) { trommeltest.Main(m) }
//
// A package need not have it: the clusters' processes end when the process of the tests ends, however that comes about.
// With it, their files are removed at once, and not by the next cluster that starts, and no goroutines are left behind.
func Main(m *testing.M) {
	m.Run() // it keeps the exit code for when TestMain returns
	if err := clusters.close(); err != nil {
		fmt.Fprintln(os.Stderr, "trommeltest:", err)
	}
}

// relay passes what a session prints on to the test that runs now; with -v people see it.
type relay struct {
	console *display.Console

	mu    sync.Mutex
	tb    testing.TB // nil: none
	built string     // the newest progress of a build
}

func (r *relay) to(tb testing.TB) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tb = tb
}

func (r *relay) title(text string) { r.console.Title(text) }

// Show implements progress.Listener.
func (r *relay) Show(e progress.Event) {
	if e.Type == progress.Build {
		r.mu.Lock()
		r.built = e.Text
		r.mu.Unlock()
	}
	r.console.Show(e)
}

func (r *relay) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.built
}

func (r *relay) Write(text []byte) (int, error) {
	if !testing.Verbose() {
		return len(text), nil
	}
	return r.write(text)
}

func (r *relay) write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tb == nil {
		return len(text), nil
	}
	return r.tb.Output().Write(text)
}

// always also writes without -v; go test shows it if the test fails.
type always struct{ *relay }

func (a always) Write(text []byte) (int, error) { return a.write(text) }

var _ io.Writer = always{}
