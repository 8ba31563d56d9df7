// Package workload carries out the steps that exercise a controller.
package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// FieldManager owns the fields that workloads apply.
const FieldManager = "trommel-workload"

// notServedGrace is how long a step waits for a type or a subresource that the API server does not serve: its
// definition may have been applied a moment ago, but more likely the name is wrong.
const notServedGrace = 5 * time.Second

// ErrRealTime is the error of a step that needs a cluster with a clock of its own.
var ErrRealTime = errors.New("advanceTime needs a cluster with a clock of its own; this one goes by this machine's")

// Defaults of a suite that was not validated.
const (
	defaultStepTimeout     = time.Minute
	defaultWorkloadTimeout = 2 * time.Minute
)

// Config says what to run.
type Config struct {
	Suite      *plan.Suite
	Workload   string // of the suite; empty: its only one
	Objects    *objects.Client
	Kubeconfig string // for commands
	// Clusters are several, by name, in which steps are carried out that name one. Nil: there is only one.
	Clusters map[string]Cluster
	// REST is for functions. It may be nil if there are none.
	REST *rest.Config
	// Functions are what steps of the kind go call, by the names in these steps.
	Functions map[string]Function
	Progress  func(text string)
	// Step is called when a step begins: number counts from 1. Its start is left to the function. Nil: Progress is
	// called.
	Step func(number, of int, s record.Step)
	Log  io.Writer // what commands print; nil: nowhere
	// Outage is asked about a write that has been failing since the given time because a webhook could not be called.
	// Nil: the webhook itself is always to blame.
	Outage func(ctx context.Context, since time.Time, err error) Outage
	// Blocked returns why a step may have failed through no fault of the controller: what the plan holds, has paused or
	// killed; empty if there is no such reason. LetGo undoes all of that and thereby ends the plan. Nil: there is never
	// such a reason.
	Blocked func(ctx context.Context) string
	LetGo   func(ctx context.Context) error
	// Disturbed is when the plan's last action so far was complete; zero if no action was completed yet. Until then,
	// what a step waits for may have been impossible, so its time counts from there. Nil: the plan does nothing.
	Disturbed func() time.Time
	// Renewing reports whether the plan has deleted the object and is yet to create it again. A step that does not find
	// it then says nothing about the controllers. Nil: the plan does nothing.
	Renewing func(ctx context.Context, key plan.ResourceKey) bool
	// Coming returns when the last of what the controllers have put off, such as a retry, is due, and the longest of
	// its delays. A step that has no timeout of its own goes on until that has come back, and for as long as the delays
	// grow, up to the suite's timeouts.rest. Zero: nothing is to come, or that is unknown. Nil: it is unknown.
	Coming func(ctx context.Context) (due time.Time, delay time.Duration)
	// Rest is called after each step that has succeeded; the next step waits for it. It reports its own problems. Nil:
	// the next step follows at once.
	Rest func(ctx context.Context)
	// Advance lets the cluster's clock jump ahead. Nil: it has none of its own.
	Advance func(ctx context.Context, by time.Duration) error
	// Upgrade installs a build of the suite, and returns when only its controllers run. Nil: it cannot be done.
	Upgrade func(ctx context.Context, to string) error
	// Note records remarks that are not findings. Nil: notes are dropped.
	Note func(text string)
}

// Cluster is one of several clusters.
type Cluster struct {
	Objects    *objects.Client
	Kubeconfig string // for commands
}

// Outage says why a webhook cannot be called although the webhook itself is not to blame.
type Outage struct {
	Reason string // one line; empty: there is no such reason now
	Final  bool   // it will not come back
	Over   bool   // there was such a reason in that time, but it is over
}

// Run carries out the steps of a workload one after the other. A step that fails or times out ends the workload, and
// Run returns its failure. An error means that the workload could not be run: ctx ended, or the suite is wrong
// ([objects.ErrNotServed], a missing file, an invalid expression), or a function is ([FunctionError]).
//
// While an API server is down, or answers that it is unavailable, a step retries until its timeout.
func Run(ctx context.Context, c Config) (*facts.StepFailure, error) {
	w, err := find(c.Suite, c.Workload)
	if err != nil {
		return nil, err
	}
	r := &runner{Config: c, objects: c.Objects.WithFieldManager(FieldManager), began: clock.Now(ctx)}
	if r.Progress == nil {
		r.Progress = func(string) {}
	}
	if r.Log == nil {
		r.Log = io.Discard
	}
	if r.Note == nil {
		r.Note = func(string) {}
	}
	if len(w.Command) > 0 {
		timeout := first(w.Timeout, c.Suite.Timeouts.Workload, defaultWorkloadTimeout)
		return r.run(ctx, []step{{title: "command", what: "run " + quote(w.Command), timeout: timeout,
			do: r.command(w.Command)}})
	}
	// Every step is prepared before the first one runs, so that a mistake in the last one is found at once.
	steps := make([]step, len(w.Steps))
	var errs []error
	for i := range w.Steps {
		title := fmt.Sprintf("step %d", i+1)
		if name := w.Steps[i].Name; name != "" {
			title += fmt.Sprintf(" %q", name)
		}
		s, err := r.in(w.Steps[i].Cluster).prepare(&w.Steps[i])
		if in := w.Steps[i].Cluster; in != "" && err == nil {
			s.what += " in " + in
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", title, err))
		}
		s.title, s.name, s.goesOn = title, w.Steps[i].Name, w.Steps[i].OnTimeout == plan.OnTimeoutContinue
		s.patient = r.isPatient(&w.Steps[i])
		if names := c.Suite.ClusterNames(); len(names) > 0 {
			s.cluster = cmp.Or(w.Steps[i].Cluster, names[0])
		}
		s.timeout = first(s.timeout, c.Suite.Timeouts.Step, defaultStepTimeout)
		steps[i] = s
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r.run(ctx, steps)
}

// isPatient reports whether a step has no timeout of its own. A suite that is complete gives each step that waits the
// usual one.
func (r *runner) isPatient(s *plan.Step) bool {
	switch {
	case s.Wait != nil:
		return s.Wait.Timeout == 0 || s.Wait.Timeout == r.Suite.Timeouts.Step
	case s.Exec != nil:
		return s.Exec.Timeout == 0
	}
	return s.Sleep == 0
}

func find(s *plan.Suite, name string) (*plan.Workload, error) {
	if name == "" && len(s.Workloads) == 1 {
		for _, w := range s.Workloads {
			return &w, nil
		}
	}
	w, ok := s.Workloads[name]
	if !ok {
		var names []string
		for n := range s.Workloads {
			names = append(names, n)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("the suite has no workload %q (it has: %s)", name, strings.Join(names, ", "))
	}
	return &w, nil
}

func first(durations ...time.Duration) time.Duration {
	for _, d := range durations {
		if d > 0 {
			return d
		}
	}
	return 0
}

// in returns the runner of steps in a cluster.
func (r *runner) in(cluster string) *runner {
	c, ok := r.Clusters[cluster]
	if !ok {
		return r
	}
	other := *r
	other.cluster = cluster
	other.objects, other.Kubeconfig = c.Objects.WithFieldManager(FieldManager), c.Kubeconfig
	return &other
}

type runner struct {
	Config
	cluster string // of several; empty: there is only one
	objects *objects.Client
	began   time.Time
}

// step is a prepared step.
type step struct {
	title   string // step 2 "it becomes ready"
	name    string
	what    string // what it does, for messages
	timeout time.Duration
	patient bool              // it waits for what is still to come, see Config.Coming
	goesOn  bool              // the workload goes on even if the step times out
	object  *plan.ResourceKey // that it deletes or patches; nil: none
	upgrade string            // the build that it installs, in words; empty: none
	cluster string            // in which it is carried out; empty: there is only one, or it is the first one
	do      func(ctx context.Context) error

	function string   // its name, and
	call     Function // what is called instead of do
}

// failure is an error whose detail is printed below it.
type failure struct {
	err    error
	detail string
	claims record.Claims
	// What a step waits for, and what it means if that does not come; see the finding's fields.
	awaited string
	harm    record.Harm
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// errStepTimeout is the cause of a step's context when its time is up.
var errStepTimeout = errors.New("step timed out")

func (r *runner) run(ctx context.Context, steps []step) (*facts.StepFailure, error) {
	for i, s := range steps {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		text := s.title + ": " + s.what
		if s.name != "" {
			text = s.name + ": " + s.what
		}
		if r.Step != nil {
			// The number is not repeated in the text.
			text = strings.TrimPrefix(text, fmt.Sprintf("step %d: ", i+1))
			r.Step(i+1, len(steps), record.Step{Text: text, Upgrade: s.upgrade})
		} else {
			r.Progress(text)
		}
		if s.call != nil {
			if failed, err := r.callOnce(ctx, s); err != nil || failed != nil {
				return failed, err
			}
			if r.Rest != nil {
				r.Rest(ctx)
			}
			continue
		}
		timedOut, outage, err := r.attempt(ctx, s)
		if err == nil {
			if r.Rest != nil {
				r.Rest(ctx)
			}
			continue
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if errors.Is(err, objects.ErrNotServed) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) ||
			errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%s: %w", s.title, err)
		}
		f := failureOf(ctx, s, err, timedOut)
		if timedOut && s.goesOn {
			r.Note(f.Title + "; the workload goes on (onTimeout: continue)")
			continue
		}
		if outage != "" {
			f.Excuse = facts.ExcusedByWebhook
			f.Detail = strings.Trim(outage+"\n"+f.Detail, "\n")
			return f, nil
		}
		if s.object != nil && apierrors.IsNotFound(err) {
			if typ, err := r.in(s.cluster).objects.Resolve(ctx, *s.object); err == nil {
				f.Harm, f.Awaited = record.HarmMissing, record.In(s.cluster, named(typ, *s.object))
			}
			if r.Renewing != nil && r.Renewing(ctx, *s.object) {
				f.Excuse = facts.ExcusedByRenewal
				f.Title += "; the plan has deleted it and had not yet created it again"
			}
		}
		if timedOut {
			if err := r.withoutPlan(ctx, s, f); err != nil {
				return nil, err
			}
		}
		return f, nil
	}
	return nil, nil
}

// withoutPlan retries a step that timed out, after everything that the plan held, had paused or killed was undone. If
// that helps, the plan was the cause.
func (r *runner) withoutPlan(ctx context.Context, s step, f *facts.StepFailure) error {
	if r.Blocked == nil {
		return nil
	}
	why := r.Blocked(ctx)
	if why == "" {
		return nil
	}
	r.Progress(s.title + " is retried with the plan's holds, pauses and kills undone: " + why)
	if err := r.LetGo(ctx); err != nil {
		return err
	}
	again, cancel := clock.WithTimeoutCause(ctx, s.timeout, errStepTimeout)
	defer cancel()
	err := s.do(again)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		f.Detail = strings.Trim("the step failed again after the plan's holds, pauses and kills were undone: "+why+"\n"+
			f.Detail, "\n")
		return nil
	}
	f.Excuse = facts.ExcusedByHolds
	f.Title += ", but the step succeeded after the plan's holds, pauses and kills were undone: the plan was the cause"
	f.Detail = strings.Trim(why+"\n"+f.Detail, "\n")
	return nil
}

// attempt runs a step. Its time counts from the plan's last action if that is later than the step's start. A write may
// fail because a webhook cannot be reached, although the webhook itself is not to blame. Such a write is tried again,
// each time with the step's whole timeout, until the outage is over. If the outage will never end, attempt returns its
// reason.
func (r *runner) attempt(ctx context.Context, s step) (timedOut bool, outage string, err error) {
	told := ""
	start := clock.Now(ctx)
	from := start // the step's time counts from here
	var late lateness
	for {
		stepCtx, cancel := clock.WithDeadlineCause(ctx, late.deadline(from.Add(s.timeout)), errStepTimeout)
		err = s.do(stepCtx)
		timedOut = errors.Is(context.Cause(stepCtx), errStepTimeout)
		cancel()
		if err != nil && timedOut && !s.goesOn && r.Disturbed != nil {
			if last := r.Disturbed(); last.After(from) {
				from = last
				r.Progress(s.title + " has more time: its timeout counts from the plan's last action")
				continue
			}
		}
		if err != nil && timedOut && s.patient && !s.goesOn && r.Coming != nil &&
			late.extend(ctx, r.Coming, from.Add(r.Suite.Timeouts.Rest)) {
			r.Progress(s.title + " has more time: a controller has put something off")
			continue
		}
		if err == nil || r.Outage == nil || !objects.WebhookFailed(err) || ctx.Err() != nil {
			return timedOut, "", err
		}
		o := r.Outage(ctx, start, err)
		if o.Final || o.Reason == "" && !o.Over {
			return timedOut, o.Reason, err
		}
		if o.Reason != "" && o.Reason != told {
			told = o.Reason
			r.Progress("waiting for a webhook: " + o.Reason)
		}
		start = clock.Now(ctx)
		from = start
	}
}

// comeBack is how long a controller has for what it had put off, when that is due.
const comeBack = 2 * time.Second

// lateness is how long a step goes on after its timeout, because something is still to come.
type lateness struct {
	until time.Time     // zero: it does not
	delay time.Duration // of what it waits for
}

// extend reports whether the step goes on. It does for as long as delays grow, as those of retries after errors do;
// what comes back again and again after the same time is waited for once. It ends at the limit.
func (l *lateness) extend(
	ctx context.Context, coming func(ctx context.Context) (due time.Time, delay time.Duration), limit time.Time,
) bool {
	due, delay := coming(ctx)
	now := clock.Now(ctx)
	if delay <= l.delay+l.delay/10 || !now.Before(due) || !now.Before(limit) {
		return false
	}
	l.until, l.delay = due.Add(comeBack), delay
	if l.until.After(limit) {
		l.until = limit
	}
	return true
}

func (l *lateness) deadline(otherwise time.Time) time.Time {
	if l.until.After(otherwise) {
		return l.until
	}
	return otherwise
}

func failureOf(ctx context.Context, s step, err error, timedOut bool) *facts.StepFailure {
	f := &facts.StepFailure{Step: s.title, Time: clock.Now(ctx)}
	var detailed *failure
	if errors.As(err, &detailed) {
		f.Detail, f.Claims, f.Harm = detailed.detail, detailed.claims, detailed.harm
		if f.Awaited = detailed.awaited; f.Awaited != "" {
			f.Awaited = record.In(s.cluster, f.Awaited)
		}
	}
	title, rest, _ := strings.Cut(err.Error(), "\n")
	switch {
	case timedOut && errors.Is(err, errStepTimeout):
		f.Title = fmt.Sprintf("%s: %s: not within %s", s.title, s.what, s.timeout)
	case timedOut:
		f.Title = fmt.Sprintf("%s: %s: not within %s: %s", s.title, s.what, s.timeout, title)
	default:
		f.Title = fmt.Sprintf("%s: %s: %s", s.title, s.what, title)
	}
	f.Detail = strings.Trim(strings.Join([]string{rest, f.Detail}, "\n"), "\n")
	return f
}

// prepare checks whatever can be checked about a step without a cluster.
func (r *runner) prepare(s *plan.Step) (step, error) {
	switch {
	case s.Apply != nil:
		return r.apply(s.Apply)
	case s.Delete != nil && s.Delete.ResourceKey.HasWildcard():
		return step{}, fmt.Errorf("delete: %s does not name one object", s.Delete.ResourceKey)
	case s.Delete != nil:
		return r.delete(s.Delete), nil
	case s.Patch != nil && s.Patch.ResourceKey.HasWildcard():
		return step{}, fmt.Errorf("patch: %s does not name one object", s.Patch.ResourceKey)
	case s.Patch != nil:
		return r.patch(s.Patch), nil
	case s.Wait != nil:
		return r.wait(s.Wait)
	case s.Exec != nil:
		return step{what: "run " + quote(s.Exec.Command), timeout: s.Exec.Timeout, do: r.command(s.Exec.Command)}, nil
	case s.Go != "":
		return r.function(s.Go)
	case s.Sleep > 0:
		return step{what: "sleep " + s.Sleep.String(), timeout: s.Sleep + time.Minute,
			do: func(ctx context.Context) error { return clock.Sleep(ctx, s.Sleep) }}, nil
	case s.Upgrade != nil:
		if r.Upgrade == nil {
			return step{}, errors.New("upgrade: this workload runs without a suite's builds")
		}
		return step{what: "upgrade to " + s.Upgrade.Name(), upgrade: s.Upgrade.Name(),
			do: func(ctx context.Context) error { return r.Upgrade(ctx, s.Upgrade.To) }}, nil
	case s.AdvanceTime > 0:
		if r.Advance == nil {
			return step{}, ErrRealTime
		}
		return step{what: "advance the clock by " + plan.FormatDuration(s.AdvanceTime),
			do: func(ctx context.Context) error { return r.Advance(ctx, s.AdvanceTime) }}, nil
	}
	return step{}, errors.New("the step does nothing (known: apply, delete, patch, wait, sleep, advanceTime, exec, " +
		"upgrade)")
}

// dir is the suite's directory.
func (r *runner) dir() string { return filepath.Dir(r.Suite.File) }

func (r *runner) apply(a *plan.ApplyStep) (step, error) {
	var list []*unstructured.Unstructured
	if a.File != "" {
		file := a.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(r.dir(), file)
		}
		var err error
		if list, _, err = manifests.ReadServed(file); err != nil {
			return step{}, err
		}
	}
	for i, o := range a.Objects {
		u, err := objects.FromMap(o)
		if err != nil {
			return step{}, fmt.Errorf("object %d: %w", i+1, err)
		}
		served, _, err := manifests.Served([]*unstructured.Unstructured{u})
		if err != nil {
			return step{}, fmt.Errorf("object %d: %w", i+1, err)
		}
		list = append(list, served...)
	}
	var names []string
	for _, u := range list {
		names = append(names, strings.ToLower(u.GetKind())+" "+u.GetName())
	}
	what := "apply " + strings.Join(names, ", ")
	if len(names) > 3 {
		what = fmt.Sprintf("apply %s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return step{what: what, do: func(ctx context.Context) error {
		for i, u := range list {
			err := r.retry(ctx, func(ctx context.Context) error {
				_, err := r.objects.Apply(ctx, u)
				return err
			})
			if err != nil && len(list) > 1 {
				return fmt.Errorf("%s: %w", names[i], err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

func (r *runner) delete(d *plan.DeleteStep) step {
	return step{what: "delete " + d.ResourceKey.String(), object: &d.ResourceKey, do: func(ctx context.Context) error {
		attempts := 0
		return r.retry(ctx, func(ctx context.Context) error {
			attempts++
			err := r.objects.Delete(ctx, d.ResourceKey, objects.DeleteOptions{GracePeriod: d.GracePeriod,
				Propagation: d.Propagation})
			// After a broken connection it is unknown whether the first attempt succeeded.
			if apierrors.IsNotFound(err) && (d.IgnoreNotFound || attempts > 1) && !objects.Transient(err) {
				return nil
			}
			return err
		})
	}}
}

func (r *runner) patch(p *plan.PatchStep) step {
	what := "patch " + p.ResourceKey.String()
	if p.Subresource != "" {
		what += " (" + p.Subresource + ")"
	}
	return step{what: what, object: &p.ResourceKey, do: func(ctx context.Context) error {
		return r.retry(ctx, func(ctx context.Context) error {
			_, err := r.objects.Patch(ctx, p.ResourceKey, p.PatchType, p.Patch, p.Subresource)
			return err
		})
	}}
}

// retry is objects.Retry, but it also waits a while for a type or a subresource that is not served yet.
func (r *runner) retry(ctx context.Context, f func(context.Context) error) error {
	start := clock.Now(ctx)
	grace := start.Add(notServedGrace)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		err := objects.Retry(ctx, func(ctx context.Context) error {
			err := f(ctx)
			if r.Outage != nil && objects.WebhookFailed(err) && r.Outage(ctx, start, err).Final {
				cancel() // further attempts would only take time
			}
			return err
		})
		if !objects.NotServedYet(err) || clock.Now(ctx).After(grace) {
			return err
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

func (r *runner) wait(s *plan.WaitStep) (step, error) {
	w := &waiter{key: s.ResourceKey, absent: s.Absent, phase: s.Phase}
	what := "wait until " + s.ResourceKey.String()
	switch {
	case s.Absent:
		what += " is gone"
	case s.Phase != "":
		what += " is in phase " + s.Phase
	case s.Condition != "":
		var err error
		if w.condition, err = cel.Object.Compile(s.Condition); err != nil {
			return step{}, fmt.Errorf("condition: %w", err)
		}
		what += " has " + w.condition.String()
	default:
		what += " exists"
	}
	return step{what: what, timeout: s.Timeout, do: func(ctx context.Context) error { return w.wait(ctx, r) }}, nil
}

func quote(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = w
		if strings.ContainsAny(w, " \t\n\"'$") || w == "" {
			words[i] = fmt.Sprintf("%q", w)
		}
	}
	text := strings.Join(words, " ")
	if len(text) > 120 {
		text = text[:117] + "..."
	}
	return text
}
