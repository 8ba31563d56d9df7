package lead

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// received says what the process had received since it began to reconcile the same request before: one of these events
// has woken it, or time has passed.
func (t *tracks) received(c *reconcile) []Step {
	since, before := 0, ""
	for i := range c.from {
		if o := t.events[i].Observation; c.same(o) && o.Session == c.session {
			since, before = i, "since the reconcile before"
			if end := t.from(i).to; end < c.from && t.events[end].Observation.Error != "" {
				before = "since the reconcile before, which failed"
			}
		}
	}
	var all []Step
	for i := since; i < c.from; i++ {
		o := t.events[i].Observation
		if !isDelivery(o, wire.After, c.session) || o.Election {
			continue
		}
		all = append(all, t.receipt(i))
	}
	if left := len(all) - maxReceived; left > 0 {
		all = all[left:]
		all[0].Text = fmt.Sprintf("(after %s) %s", wording.Count(left, "other"), all[0].Text)
	}
	switch {
	case len(all) > 0:
	case before == "":
		all = []Step{{Text: "nothing is received before; it is the first reconcile of it by this process"}}
	default:
		all = []Step{{Text: "nothing is received " + before + ": it comes again, or is tried again"}}
	}
	if all[0].At.IsZero() {
		all[0].At = t.events[c.from].Time
	}
	return all
}

// receipt is the step in which a process receives an event.
func (t *tracks) receipt(at int) Step {
	o := t.events[at].Observation
	return Step{At: t.events[at].Time, Text: fmt.Sprintf("%s receives the %s of %s%s", o.By, record.Noun(o.Op),
		object(o, o.Namespace, o.Name), version(t.versions[at]))}
}

// unseen says what a process had not seen when it made a call: events that were held, or else newer states of what it
// has in its caches.
func (t *tracks) unseen(by string, session uint64, at int) []string {
	if held := t.undelivered(session, at); len(held) > 0 {
		return held
	}
	type known struct{ cluster, group, kind, namespace, name string }
	looked := map[known]bool{}
	var all []string
	for i := range t.history {
		h := &t.history[i]
		is := known{h.Cluster, h.Group, h.Type, h.Namespace, h.Name}
		if looked[is] || len(all) == maxObjects {
			continue
		}
		looked[is] = true
		o := &record.Observation{
			By: by, Session: session, Cluster: h.Cluster, Kind: h.Type, Group: h.Group, GroupKnown: true,
		}
		name := objectName{h.Namespace, h.Name}
		if text := t.behind(at, o, name, t.cached(at, o, name), true); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// undelivered says which events were held on their way to a process, or to an API server that would have sent it their
// like, when it made a call, the oldest first. In an ordered run each event that comes later was held; otherwise those
// for longer than a cache is behind at any time.
func (t *tracks) undelivered(session uint64, at int) (all []string) {
	for i := range at {
		o := t.events[i].Observation
		comes := isDelivery(o, wire.Before, session) || t.isForServerOf(o, session)
		if !comes || o.Election || len(all) == maxObjects {
			continue
		}
		since := t.events[at].Time.Sub(t.events[i].Time)
		if !t.ordered && since < late || !t.comesAfter(o, at) {
			continue
		}
		text := fmt.Sprintf("%s had not received the %s of %s%s: that event was held", o.By, record.Noun(o.Op),
			object(o, o.Namespace, o.Name), version(t.versions[i]))
		if since >= late {
			text += ", for " + roughly(since) + " by then"
		}
		all = append(all, text+".")
	}
	return all
}

// comesAfter reports whether a delivery ends after an event. If it never ends, it does if the record shows what the
// process received of that type.
func (t *tracks) comesAfter(o *record.Observation, at int) bool {
	if came, ok := t.answers[[2]uint64{o.Session, o.Call}]; ok {
		return came > at
	}
	return t.takes[reception{o.Session, o.Kind}]
}

// isForServerOf reports whether an API server is about to receive an event of a type that a process receives.
func (t *tracks) isForServerOf(o *record.Observation, session uint64) bool {
	return o != nil && o.Point == wire.APIServerRecv && o.Phase == wire.Before && t.takes[reception{session, o.Kind}]
}

func isDelivery(o *record.Observation, phase wire.Phase, session uint64) bool {
	return o != nil && o.Point == wire.ControllerRecv && o.Phase == phase && o.Session == session
}

// steps lists what a reconcile did until an event, which it includes, or -1: until its end. Stale says, for what it
// read that was not the newest, what it should have seen.
func (t *tracks) steps(c *reconcile, until int) (all []Step, stale []string) {
	for _, i := range t.calls(c, until) {
		o := t.events[i].Observation
		switch o.Point {
		case wire.ControllerRead:
			s, missed := t.read(i)
			if n := len(all); n > 0 && all[n-1].Text == s.Text {
				continue // the same again
			}
			all = append(all, s)
			for _, m := range missed {
				if !slices.Contains(stale, m) && len(stale) < maxStale {
					stale = append(stale, m)
				}
			}
		default:
			all = append(all, t.wrote(i, i == until))
		}
	}
	left := len(all) - maxSteps
	if left <= 0 {
		return all, stale
	}
	kept := slices.DeleteFunc(slices.Clone(all[:left]), func(s Step) bool { return !s.Wrong })
	all[left].Text = fmt.Sprintf("(after %s) %s", wording.Count(left-len(kept), "other"), all[left].Text)
	return append(kept, all[left:]...), stale
}

// calls are the events of a reconcile's calls until an event, or its end: the answers of reads, and the beginnings of
// writes. If they are many, these are the last ones.
func (t *tracks) calls(c *reconcile, until int) (all []int) {
	for i := c.from + 1; i < c.to && (until < 0 || i <= until); i++ {
		o := t.events[i].Observation
		if o == nil || o.Election || o.ReconcileID != c.id {
			continue
		}
		if o.Point == wire.ControllerRead && o.Phase == wire.After ||
			o.Point == wire.ControllerWrite && o.Phase == wire.Before {
			all = append(all, i)
		}
	}
	return all[max(0, len(all)-mostCalls):]
}

// mostCalls is how many calls of a reconcile are looked at. More would take long where each lists many objects.
const mostCalls = 100

// wrote is the step of a write, with what came of it.
func (t *tracks) wrote(at int, named bool) Step {
	o := t.events[at].Observation
	s := Step{At: t.events[at].Time, Text: "it " + did(o), Place: place(o), Wrong: named, write: true}
	answer, ok := t.answers[[2]uint64{o.Session, o.Call}]
	switch {
	case !ok || answer < at:
		s.Text += ", and gets no answer"
	default:
		a := t.events[answer].Observation
		switch {
		case a.Failed == wire.Lost:
			s.Text += fmt.Sprintf(": done%s, but the plan makes the answer get lost", version(t.versions[answer]))
		case a.Failed != "":
			s.Text += ": the plan has it refused"
		case a.Error != "":
			s.Text += ": " + wording.FirstLine(a.Error)
		default:
			s.Text += version(t.versions[answer])
		}
	}
	return s
}

// read is the step of a read, and what it should have seen.
func (t *tracks) read(at int) (s Step, missed []string) {
	o := t.events[at].Observation
	how := ""
	if o.Live {
		how = ", from the API server"
	}
	s = Step{At: t.events[at].Time, Place: place(o)}
	if o.Name == "" {
		s.Text = fmt.Sprintf("it lists %s%s", of(o), how)
		if o.Live {
			return s, nil // what it saw is not in the record
		}
		for _, name := range t.names(o) {
			got := t.cached(at, o, name)
			if text := t.behind(at, o, name, got, true); text != "" {
				missed = append(missed, text)
			}
		}
		if n := len(missed); n > 0 {
			s.Wrong = true
			s.Text += ", from a cache that is behind"
			missed = missed[:min(n, maxObjects)]
		}
		return s, missed
	}
	got := t.versions[at]
	if got == 0 && o.Code != http.StatusNotFound {
		s.Text = fmt.Sprintf("it reads %s%s: %s", object(o, o.Namespace, o.Name), how, wording.FirstLine(o.Error))
		return s, nil
	}
	s.Text = fmt.Sprintf("it reads %s%s%s", object(o, o.Namespace, o.Name), version(got), how)
	if got == 0 {
		s.Text += ": there is none"
	} else {
		s.read = nameOf(o)
	}
	if from, ok := t.begun[[2]uint64{o.Session, o.Call}]; ok {
		if d := t.events[at].Time.Sub(t.events[from].Time); d >= long {
			s.Text += ", held for " + roughly(d)
		}
	}
	if text := t.behind(at, o, objectName{o.Namespace, o.Name}, got, false); text != "" {
		s.Wrong = true
		s.Text += ", which is not the newest"
		return s, []string{text}
	}
	return s, nil
}

// behind says what is newer than the version that was read, or that a cache had; empty: nothing is, or it is unknown.
// In a cache, what is newer by less than late is left out.
func (t *tracks) behind(at int, o *record.Observation, name objectName, got uint64, inCache bool) string {
	newest, missed := t.newest(at, o, name.namespace, name.name, got)
	if newest == nil || inCache && t.events[at].Time.Sub(newest.Time) < late {
		return ""
	}
	how := map[string]string{
		record.Created: "created", record.Updated: "written", record.Deleted: "deleted",
	}[newest.Event]
	if who := t.writers[newest.ResourceVersion]; who != "" {
		how += " by " + who
	}
	if d := t.events[at].Time.Sub(newest.Time); d > 0 {
		how += " " + roughly(d) + " before"
	}
	key := object(o, name.namespace, name.name)
	if newest.Event == record.Deleted {
		if inCache {
			return fmt.Sprintf("Its cache should not have had %s: it was %s.", key, how)
		}
		return fmt.Sprintf("It should have seen that %s was gone: it was %s.", key, how)
	}
	should, lag := "It should have seen", wording.Count(missed, "version")+" behind"
	if inCache {
		should = "Its cache should have had"
	}
	if got == 0 {
		lag = "there was none"
	}
	return fmt.Sprintf("%s %s%s, %s: %s.", should, key, version(newest.ResourceVersion), how, lag)
}

// of is "pods in default".
func of(o *record.Observation) string {
	text := o.KindOrResource() + "s"
	if o.Namespace != "" {
		text += " in " + o.Namespace
	}
	return record.In(o.Cluster, text)
}

func object(o *record.Observation, namespace, name string) string {
	return record.In(o.Cluster, o.KindOrResource()+"/"+namespace+"/"+name)
}

// did is "updates the status of database/default/db".
func did(o *record.Observation) string {
	what := map[wire.Operation]string{
		wire.Create: "creates", wire.Update: "updates", wire.Patch: "patches", wire.Apply: "applies",
		wire.Delete: "deletes", wire.DeleteCollection: "deletes a collection of",
	}[o.Op]
	if o.Subresource != "" {
		what += " the " + o.Subresource + " of"
	}
	return what + " " + object(o, o.Namespace, o.Name)
}

func version(v uint64) string {
	if v == 0 {
		return ""
	}
	return " (version " + strconv.FormatUint(v, 10) + ")"
}

func place(o *record.Observation) string {
	if !o.Callers.Known() {
		return ""
	}
	return o.Callers[0].String()
}

// roughly is a short time, too.
func roughly(d time.Duration) string {
	if d < 100*time.Millisecond {
		return strings.Replace(d.Round(100*time.Microsecond).String(), "ms", " ms", 1)
	}
	return wording.Roughly(d)
}
