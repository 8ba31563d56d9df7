package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/progress"
)

// follower follows a campaign.
type follower struct {
	mu    sync.Mutex
	texts []string
	heard chan struct{} // has an entry for each event

	end  *End
	err  error
	done chan struct{}
}

func (f *follower) Show(e progress.Event) {
	f.mu.Lock()
	f.texts = append(f.texts, e.Text)
	f.mu.Unlock()
	f.heard <- struct{}{}
}

// attach follows a campaign until the test ends.
func attach(t *testing.T, s *Server) *follower {
	t.Helper()
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{heard: make(chan struct{}, 3*keptLines), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(f.done)
		f.end, f.err = Attach(ctx, "https://"+s.Address(), token, time.Minute, f, func(string) {})
	}()
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	return f
}

// hears waits for n events.
func (f *follower) hears(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-f.heard:
		case <-time.After(time.Minute):
			t.Fatal("an event has not come")
		}
	}
}

func say(s *Server, text string) { s.Show(progress.Event{Type: progress.Info, Text: text}) }

// A follower receives all lines of a campaign, whenever it comes, and how it ends.
func TestAttach(t *testing.T) {
	s := serve(t, nil)
	early := attach(t, s)
	say(s, "one")
	early.hears(t, 1)
	late := attach(t, s)
	late.hears(t, 1)
	s.Show(progress.Event{Type: progress.Phase, Text: "of a single run", Aside: true})
	say(s, "two")
	s.Ended(End{Summary: "bugs\n", Code: 1})
	s.Ended(End{Code: 4})
	if err := s.Close(true); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*follower{early, late} {
		<-f.done
		if f.err != nil || cmp.Diff(&End{Summary: "bugs\n", Code: 1}, f.end) != "" {
			t.Errorf("%+v, %v", f.end, f.err)
		}
		if diff := cmp.Diff([]string{"one", "two"}, f.texts); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A resumed campaign sends the lines from its new beginning.
func TestAttachedCampaignIsResumed(t *testing.T) {
	s := serve(t, nil)
	f := attach(t, s)
	say(s, "one")
	say(s, "two")
	f.hears(t, 2)
	if err := s.Close(false); err != nil {
		t.Fatal(err)
	}
	resumed := serve(t, func(c *Config) { c.Dir, c.Address = s.config.Dir, "" })
	say(resumed, "resumed")
	f.hears(t, 1)
	resumed.Ended(End{})
	if err := resumed.Close(true); err != nil {
		t.Fatal(err)
	}
	<-f.done
	if diff := cmp.Diff([]string{"one", "two", "resumed"}, f.texts); diff != "" || f.err != nil {
		t.Errorf("%v, (-want +got):\n%s", f.err, diff)
	}
}

func TestAttachWithAnotherToken(t *testing.T) {
	s, other := serve(t, nil), serve(t, nil)
	token, err := other.Token()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Attach(t.Context(), "https://"+s.Address(), token, time.Minute, progress.Nobody, func(string) {})
	if !errors.Is(err, errOtherCampaign) {
		t.Errorf("with the token of another campaign: %v", err)
	}
	token, err = s.Token()
	if err != nil {
		t.Fatal(err)
	}
	_, digest, _ := strings.Cut(token, ".")
	_, err = Attach(t.Context(), "https://"+s.Address(), "x."+digest, time.Minute, progress.Nobody, func(string) {})
	if !is(err, 401) {
		t.Errorf("with another secret: %v", err)
	}
}

// A campaign of days does not keep all of its lines.
func TestLinesAreForgotten(t *testing.T) {
	all := newFeed()
	for i := range 3 * keptLines {
		all.add(Line{Event: &progress.Event{Text: fmt.Sprint(i)}})
	}
	lines, first, ended, _ := all.since(0)
	if len(lines) > keptLines || len(lines) < keptLines/2 || first+len(lines) != 3*keptLines || ended {
		t.Errorf("%d lines from %d on, %t", len(lines), first, ended)
	}
	for _, n := range []int{first, first + len(lines) - 2} {
		if some, from, _, _ := all.since(n); from != n || some[0].Event.Text != fmt.Sprint(n) {
			t.Errorf("line %d: from %d on, %s", n, from, some[0].Event.Text)
		}
	}
	if none, from, _, _ := all.since(1 << 30); len(none) > 0 || from != 3*keptLines {
		t.Errorf("lines that were not sent yet: %d lines from %d on", len(none), from)
	}
}
