package inject

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// Config configures an injector. Request, Backends, Backend and Journal are required.
type Config struct {
	Request Request
	// Backends are all that the journal may name; Backend is the one for this request.
	Backends []Backend
	Backend  string
	Journal  string // directory
	// ReadyFile exists while the fault is in effect.
	ReadyFile string
	// DryRun does everything but inject.
	DryRun bool
	// Grace is the time from the end of the fault on in which the injector must have cleaned up, with all retries. It
	// is killed then. Default: one minute.
	Grace time.Duration
	// StateFile gets the newest state, as JSON; empty: none.
	StateFile string
	// Report receives the states in their order. It must not block.
	Report func(State)
	Logger *slog.Logger
}

const (
	// overtime is how long an injector stays when its duration is over: usually the controllers end it before.
	overtime = 2 * time.Second
	// retries of a clean-up that has failed.
	retries = 3
	// cleanTimeout limits each try.
	cleanTimeout = 10 * time.Second
	// firstPause is the pause before the first retry. Each further one is twice as long.
	firstPause = time.Second
	// defaultGrace is that of a chaos pod.
	defaultGrace = time.Minute
)

// ErrLeft is returned, wrapped, if something that was injected could not be removed. It is still in the journal.
var ErrLeft = errors.New("something is left")

// injector is the state of Run.
type injector struct {
	Config
	journal *Journal
	// How long these took.
	injecting, removing time.Duration
	counts              Counts
	last                State // the newest that was reported
}

// Run injects a fault, waits until the context or the request's time is over, and removes the fault. Removing does not
// depend on the context. If it cannot inject, it removes at once what it has done, and returns. It returns nil if
// nothing is left; errors while injecting are reported.
func Run(ctx context.Context, config Config) error {
	i := &injector{Config: config}
	if i.Logger == nil {
		i.Logger = slog.New(slog.DiscardHandler)
	}
	if i.Report == nil {
		i.Report = func(State) {}
	}
	if err := i.Request.Validate(); err != nil {
		return err
	}
	if err := i.removeReadyFile(); err != nil {
		return err
	}
	i.Logger.Info("start", "kind", i.Request.Kind, "target", i.Request.Target.String(),
		"disruption", i.Request.Disruption,
		"backend", i.Backend, "dryRun", i.DryRun)
	var err error
	if i.journal, err = OpenJournal(i.Journal); err != nil {
		return err
	}
	unlock, err := i.journal.lock(ctx, i.Request.ID(), math.MaxInt64)
	if err != nil {
		return err
	}
	defer unlock()
	waiting, cancel := context.WithDeadline(ctx, i.Request.EndsAt.Add(overtime))
	defer cancel()
	// Others may have been killed without a cleanup. This injector injects all the same.
	removed, err := i.cleanOver(ctx)
	if i.counts.Cleaned += removed; err != nil {
		i.counts.CleanFailures++
		i.Logger.Warn("clean what is over", "error", err)
	}
	if err := i.sweep(ctx); err != nil {
		i.counts.CleanFailures++
		// The earlier fault is not the one that was asked for. Whoever restarts the injector lets it try again.
		err = fmt.Errorf("remove what an earlier injector has left: %w", err)
		i.tell(v1alpha1.InjectionStuck, err)
		return fmt.Errorf("%w: %w", ErrLeft, err)
	}
	if !time.Now().Before(i.Request.EndsAt) {
		i.tell(v1alpha1.InjectionRemoved, nil) // it was restarted, or came too late
		return nil
	}
	injection, err := i.inject(ctx)
	switch {
	case err != nil && injection == nil:
		return i.removeReadyFile()
	case err != nil:
		return errors.Join(i.clean(injection.Clean, false), i.removeReadyFile())
	}
	<-waiting.Done()
	i.Logger.Info("end", "cause", context.Cause(waiting))
	if injection == nil { // a dry run
		i.tell(v1alpha1.InjectionRemoved, nil)
		return i.removeReadyFile()
	}
	return errors.Join(i.clean(injection.Clean, true), i.removeReadyFile())
}

// inject injects the fault, and reports the result. It returns what must be cleaned; nil if nothing was touched.
func (i *injector) inject(ctx context.Context) (Injection, error) {
	entry := Entry{Backend: i.Backend, Request: i.Request, Began: time.Now()}
	injection, err := i.make(entry)
	if err == nil {
		err = injection.Check(ctx)
	}
	switch {
	case errors.Is(err, ErrUnsupported):
		i.tell(v1alpha1.InjectionUnsupported, err)
		return nil, err
	case err != nil:
		i.counts.InjectFailures++
		i.tell(v1alpha1.InjectionFailed, err)
		return nil, err
	case i.DryRun:
		err = i.ready()
		i.tellInjected(err)
		return nil, err
	}
	if f, ok := injection.(Foresees); ok {
		// The injection's own notes are those of the entry from now on.
		if entry.Notes, err = json.Marshal(f.Foresee()); err == nil {
			injection, err = i.make(entry)
		}
	}
	if err == nil {
		err = i.journal.write(entry)
	}
	if err != nil {
		i.counts.InjectFailures++
		i.tell(v1alpha1.InjectionFailed, err)
		return nil, err
	}
	began := time.Now()
	err = injection.Inject(ctx)
	i.injecting = time.Since(began)
	if err == nil {
		err = i.ready()
	}
	if err == nil {
		i.counts.Injected++
	} else {
		i.counts.InjectFailures++
	}
	i.tellInjected(err)
	return injection, err
}

func (i *injector) tellInjected(err error) {
	if err != nil {
		i.tell(v1alpha1.InjectionFailed, err)
		return
	}
	i.tell(v1alpha1.InjectionInjected, nil)
}

// make makes the injection of an entry.
func (i *injector) make(e Entry) (Injection, error) {
	at := slices.IndexFunc(i.Backends, func(b Backend) bool { return b.Name() == e.Backend })
	if at < 0 {
		return nil, fmt.Errorf("no backend %q", e.Backend)
	}
	return i.Backends[at].New(e.Request, &Notes{data: e.Notes, save: func(data json.RawMessage) error {
		e.Notes = data
		return i.journal.write(e)
	}})
}

// sweep removes what an injector with the same ID, which is dead, has left.
func (i *injector) sweep(ctx context.Context) error {
	entry, err := i.journal.read(i.Request.ID())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	injection, err := i.make(entry)
	if err != nil {
		return err
	}
	if err := injection.Clean(ctx); err != nil {
		return err
	}
	i.counts.Cleaned++
	return i.journal.remove(i.Request.ID())
}

// clean removes the fault and its entry. It reports success unless the fault was not in effect: that stays the last
// message, with other counts. A clean-up that fails is retried, as long as there is time.
func (i *injector) clean(remove func(context.Context) error, wasInjected bool) error {
	began := time.Now()
	left := func() time.Duration { return time.Until(began.Add(i.cleanWithin())) }
	var err error
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), tryFor(n, left()))
		if err = remove(ctx); err == nil {
			err = i.journal.remove(i.Request.ID())
		}
		cancel()
		i.removing = time.Since(began)
		switch {
		case err == nil && wasInjected:
			i.counts.Cleaned++
			i.tell(v1alpha1.InjectionRemoved, nil)
			return nil
		case err == nil:
			i.counts.Cleaned++
			i.write(i.last)
			return nil
		}
		i.counts.CleanFailures++
		i.Logger.Warn("clean", "try", n+1, "error", err)
		if n == retries || left() <= 0 {
			break
		}
		i.counts.Retries++
		time.Sleep(pauseAfter(n, left())) // no event reports that it would work now
	}
	i.tell(v1alpha1.InjectionStuck, err)
	return fmt.Errorf("%w: %w", ErrLeft, err)
}

// cleanWithin is how long a clean-up may take. The rest of the grace period is for its report.
func (i *injector) cleanWithin() time.Duration {
	return cmp.Or(max(i.Grace, 0), defaultGrace) * 9 / 10
}

// tryFor is the time limit of try n, beginning with 0, if this much time is left. Half of it is kept for later tries.
func tryFor(n int, left time.Duration) time.Duration {
	if n < retries {
		left /= 2
	}
	return min(cleanTimeout, left)
}

// pauseAfter is the pause after try n. With little time left, the pauses still grow, and the last retry has as much
// time as the pause before it.
func pauseAfter(n int, left time.Duration) time.Duration {
	return min(firstPause<<n, left>>(retries-n))
}

func (i *injector) tell(state v1alpha1.InjectionState, err error) {
	s := State{State: state, At: time.Now()}
	if err != nil {
		s.Error = err.Error()
	}
	i.Logger.Info("state", "state", state, "error", s.Error)
	i.Report(i.write(s))
}

// write writes a state into its file, with the present times and counts.
func (i *injector) write(s State) State {
	s.InjectMillis, s.RemoveMillis, s.Counts = millis(i.injecting), millis(i.removing), i.counts
	i.last = s
	if err := s.write(i.StateFile); err != nil {
		i.Logger.Warn("write the state", "error", err)
	}
	return s
}

// millis rounds up: 0 says that it was not done.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func (i *injector) ready() error {
	if i.ReadyFile == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(i.ReadyFile), 0o755); err != nil {
		return fmt.Errorf("write the readiness file: %w", err)
	}
	if err := os.WriteFile(i.ReadyFile, nil, 0o644); err != nil {
		return fmt.Errorf("write the readiness file: %w", err)
	}
	return nil
}

func (i *injector) removeReadyFile() error {
	if i.ReadyFile == "" {
		return nil
	}
	if err := os.Remove(i.ReadyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the readiness file: %w", err)
	}
	return nil
}

// CleanAll removes everything that is in the journal and whose injector is dead. It returns how many entries it has
// removed.
func CleanAll(ctx context.Context, journal string, backends []Backend, logger *slog.Logger) (int, error) {
	removed, _, err := clean(ctx, journal, backends, logger, 0, func(*Journal, string) bool { return true })
	return removed, err
}

// patience is how long CleanOne waits for another process that has the entry. That may be another cleaner, which is
// quick.
const patience = 5 * time.Second

// CleanOne is CleanAll for the injection with an ID. Its entry may have gone; if its injector lives, that is an error.
func CleanOne(ctx context.Context, journal, id string, backends []Backend, logger *slog.Logger) (int, error) {
	removed, skipped, err := clean(ctx, journal, backends, logger, patience,
		func(_ *Journal, other string) bool { return other == id })
	if err == nil && skipped > 0 {
		err = fmt.Errorf("clean %s: %w", id, errLocked)
	}
	return removed, err
}

// cleanOver is CleanAll for injections whose time is over, or that were never begun, as far as this injector can: it
// may have no token, or not the privileges.
func (i *injector) cleanOver(ctx context.Context) (int, error) {
	kind := i.Request.Kind
	own := kinds.Of(kind).Privileges(i.DryRun)
	removed, _, err := clean(ctx, i.Journal, i.Backends, i.Logger, 0, func(j *Journal, id string) bool {
		entry, err := j.read(id)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		other := entry.Request.Kind
		return time.Now().After(entry.Request.EndsAt.Add(overtime)) && kinds.Of(other).InAPI == kinds.Of(kind).InAPI &&
			(own.All || !kinds.Of(other).RealNode.All)
	})
	return removed, err
}

// clean removes the entries that which chooses. It skips those that another process has for longer than patience.
func clean(
	ctx context.Context, journal string, backends []Backend, logger *slog.Logger, wait time.Duration,
	which func(*Journal, string) bool,
) (removed, skipped int, err error) {
	j, err := OpenJournal(journal)
	if err != nil {
		return 0, 0, err
	}
	ids, err := j.IDs()
	if err != nil {
		return 0, 0, err
	}
	var errs []error
	for _, id := range ids {
		if !which(j, id) {
			continue
		}
		unlock, err := j.lock(ctx, id, wait)
		if errors.Is(err, errLocked) {
			logger.Info("skip", "id", id, "reason", err)
			skipped++
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		entry, err := j.read(id)
		switch {
		case err == nil:
			i := &injector{Config: Config{Request: entry.Request, Backends: backends}, journal: j}
			err = i.sweep(ctx)
		case errors.Is(err, fs.ErrNotExist):
			// It was killed before it did anything.
			err = j.remove(id)
		}
		unlock()
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrLeft, id, err))
			continue
		}
		removed++
	}
	return removed, skipped, errors.Join(errs...)
}
