package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Worker makes runs for a campaign on another machine. All fields but Files and Say are required.
type Worker struct {
	Server  string // https://HOST:PORT
	Token   string
	Name    string // for messages; the campaign distinguishes workers of the same name
	Trommel string // its build, see Build
	Cache   string // directory of what campaigns need, by digest; workers may share it
	// Files is a directory that does not change, with what campaigns need, each file by its digest: it is looked there
	// first. Empty: there is none.
	Files string
	Dir   string // an empty directory of the worker's own, for the campaign's files and records
	// Patience is how long the worker tries to reach a campaign that does not answer.
	Patience time.Duration
	// Open prepares what makes the runs. The caller closes it.
	Open func(ctx context.Context, e Equipment) (Runner, error)
	Say  func(text string)
}

// Equipment is what runs are made with.
type Equipment struct {
	Suite        *plan.Suite // with the variant
	Binaries     []builds.Binary
	ControlPlane string
	Builds       map[string]*builds.Build // the suite's others
}

// Runner makes runs; a *run.Session is one.
type Runner interface {
	run.Runner
	Close(ctx context.Context) error
}

// badRuns in a row that could not be made say that something is wrong with the machine.
const badRuns = 3

// errLost is the cause of a run's end if its result is not wanted any more.
var errLost = errors.New("the run was given to another worker")

// ErrRefused is the error of a worker that this campaign will never take: its token or its build is wrong.
var ErrRefused = errors.New("this worker cannot work for the campaign")

// refusedError adds ErrRefused to an error, which says why.
type refusedError struct{ error }

func (e refusedError) Is(target error) bool { return target == ErrRefused }
func (e refusedError) Unwrap() error        { return e.error }

// Work makes runs until the campaign is over, and then returns nil. It changes the working directory of the process.
// When ctx ends, it gives back the run that it was making.
func (w *Worker) Work(ctx context.Context) (err error) {
	if w.Say == nil {
		w.Say = func(string) {}
	}
	c, err := newClient(w.Server, w.Token, w.Name+"-"+rand.Text()[:6], w.Patience, w.Say)
	if err != nil {
		return refusedError{err}
	}
	defer c.http.CloseIdleConnections()
	for _, dir := range []*string{&w.Cache, &w.Dir, &w.Files} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	campaign, err := c.campaign(ctx)
	if is(err, http.StatusUnauthorized) || errors.Is(err, errOtherCampaign) {
		return refusedError{err}
	}
	if err != nil {
		return err
	}
	if campaign.Protocol != protocol || campaign.Trommel != w.Trommel {
		return refusedError{fmt.Errorf("the campaign runs with trommel %s, and this is %s: both must be the same",
			campaign.Trommel, w.Trommel)}
	}
	from := &store{cache{w.Cache}, w.Files, c.fetch, w.Say}
	u, err := w.equip(ctx, from, campaign.Bundle)
	if err != nil {
		return err
	}
	runner, err := w.Open(ctx, Equipment{
		Suite: u.suite, Binaries: u.binaries, ControlPlane: u.controlPlane, Builds: u.builds,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Close(context.WithoutCancel(ctx))) }()
	at := &work{Worker: w, client: c, from: from, equipment: u, runner: runner, lease: campaign.Lease}
	return at.loop(ctx)
}

// equip fetches the bundle.
func (w *Worker) equip(ctx context.Context, from *store, digest string) (*unpacked, error) {
	file, _, err := from.get(ctx, digest)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var b Bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("the bundle: %w", err)
	}
	return b.unpack(ctx, filepath.Join(w.Dir, "campaign"), from)
}

// work is a worker that has what it needs.
type work struct {
	*Worker
	client    *client
	from      *store
	equipment *unpacked
	runner    Runner
	lease     time.Duration
	bad       int // runs in a row that could not be made
	// The newest baseline, which most runs have in common.
	baseline       *baseline.Baseline
	baselineDigest string
}

func (w *work) loop(ctx context.Context) error {
	for {
		job, err := w.client.take(ctx)
		switch {
		case is(err, http.StatusGone):
			w.Say("the campaign is over")
			return nil
		case err != nil:
			return w.leave(ctx, err)
		}
		if err := w.do(ctx, job); err != nil {
			return w.leave(ctx, err)
		}
		if w.bad >= badRuns {
			return w.leave(ctx, fmt.Errorf("%d runs in a row could not be made here", w.bad))
		}
	}
}

// leaveFor is how long a worker tries to say that it leaves.
const leaveFor = 2 * time.Second

// leave says that the worker leaves, and returns why.
func (w *work) leave(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	_ = w.client.tell(ctx, "/v1/workers/"+w.client.name+"/leave", struct{}{}) // else it is missed after a while
	return why
}

// do makes a run and sends what became of it. The error says that the worker cannot go on.
func (w *work) do(ctx context.Context, job *Job) error {
	w.Say(fmt.Sprintf("%s (attempt %d)", job.Name, job.Attempt))
	dir := filepath.Join(w.Dir, "record")
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(dir+".tar.gz")); err != nil {
		return err
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		w.beat(runCtx, job.Lease, cancel)
	}()
	defer func() {
		cancel(nil)
		<-beats
	}()
	meta, err := w.run(runCtx, job, dir)
	switch {
	case ctx.Err() != nil:
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
		defer cancel()
		_ = w.client.tell(back, "/v1/leases/"+job.Lease+"/return", struct{}{}) // else the lease ends
		return context.Cause(ctx)
	case runCtx.Err() != nil:
		w.Say(fmt.Sprintf("%s: %v", job.Name, context.Cause(runCtx)))
		return nil
	}
	result := Result{}
	var user *run.UserError
	if err != nil {
		result.Error, result.User = err.Error(), errors.As(err, &user)
		w.Say(fmt.Sprintf("%s: %v", job.Name, err))
	}
	if w.bad++; err == nil || result.User {
		w.bad = 0
	}
	err = w.send(runCtx, job, meta, dir, result)
	switch {
	case ctx.Err() != nil, runCtx.Err() == nil && err != nil && !is(err, http.StatusGone):
		return err
	case err != nil:
		w.Say(fmt.Sprintf("%s: its result is not needed any more", job.Name))
	}
	return os.RemoveAll(dir)
}

// beat says that the worker is at a run, until ctx ends. It cancels the run if its result is not wanted any more.
func (w *work) beat(ctx context.Context, id string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(w.lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		once, end := context.WithTimeout(ctx, w.lease/3)
		err := w.client.tell(once, "/v1/leases/"+id+"/beat", struct{}{})
		end()
		if is(err, http.StatusGone) {
			cancel(errLost)
			return
		}
	}
}

// run makes a run.
func (w *work) run(ctx context.Context, job *Job, dir string) (*record.Meta, error) {
	file := job.File
	if filepath.IsAbs(file) {
		file = filepath.Join(w.equipment.root, file)
	}
	p, err := plan.Parse(job.Plan, file)
	if err != nil {
		return nil, &run.UserError{Err: err}
	}
	p.Complete(w.equipment.suite)
	if err := p.Validate(w.equipment.suite); err != nil {
		return nil, &run.UserError{Err: err}
	}
	o := run.RunOptions{
		Trace: job.Trace, FindTypes: job.FindTypes, History: job.History, Shift: job.Shift, Polls: job.Polls,
	}
	if job.Baseline != "" {
		if o.Baseline, err = w.baselineOf(ctx, job.Baseline); err != nil {
			return nil, err
		}
	}
	return w.runner.RunWith(ctx, p, dir, o)
}

func (w *work) baselineOf(ctx context.Context, digest string) (*baseline.Baseline, error) {
	if w.baselineDigest == digest {
		return w.baseline, nil
	}
	file, _, err := w.from.get(ctx, digest)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	ref, err := decodeReference(data)
	if err != nil {
		return nil, fmt.Errorf("the baseline: %w", err)
	}
	w.baseline, w.baselineDigest = ref, digest
	return ref, nil
}

// send sends a run's record, if there is one, and its result.
func (w *work) send(ctx context.Context, job *Job, meta *record.Meta, dir string, result Result) error {
	packed := dir + ".tar.gz"
	if _, err := os.Stat(dir); err == nil {
		if result.Record, result.Left, err = packTo(packed, dir, brief(job, meta)); err != nil {
			result.Error = errors.Join(errorOf(result.Error), err).Error()
		}
	}
	return w.client.retried(ctx, "send the result of "+job.Name, func(ctx context.Context) error {
		if result.Record != "" {
			if err := w.client.send(ctx, job.Lease, packed, result.Record); err != nil {
				return err
			}
		}
		return w.client.tell(ctx, "/v1/leases/"+job.Lease+"/result", result)
	})
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// brief returns what need not be sent of a record; nil: all is.
func brief(job *Job, meta *record.Meta) func(path string) bool {
	if !job.Brief || meta == nil || meta.Verdict != record.Pass {
		return nil
	}
	return func(path string) bool {
		in, _ := filepath.Match(record.LogsDir+"/*", path)
		return in || path == record.ObservationsFile || path == record.HistoryFile
	}
}

// packTo packs a record into a file, and returns its digest.
func packTo(file, dir string, without func(path string) bool) (digest string, left []string, err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, record.FileMode)
	if err != nil {
		return "", nil, err
	}
	hash := sha256.New()
	left, err = pack(io.MultiWriter(out, hash), dir, maxRecord, without)
	if err = errors.Join(err, out.Close()); err != nil {
		return "", nil, err
	}
	return hex.EncodeToString(hash.Sum(nil)), left, nil
}
