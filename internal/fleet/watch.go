package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/progress"
)

// Line is a line of what a campaign sends to those that follow it: an event, or its end.
type Line struct {
	Event *progress.Event `json:"event,omitempty"`
	End   *End            `json:"end,omitempty"`
}

// End is how a campaign has ended.
type End struct {
	Summary string `json:"summary"`
	Code    int    `json:"code"` // the exit code of its command
}

// keptLines is how many lines a campaign keeps: enough to see where it stands.
const keptLines = 20_000

// feed keeps the lines of a campaign for those that follow it from elsewhere. The oldest lines are forgotten at some
// time.
type feed struct {
	process string // distinguishes the lines from those before the campaign was resumed

	mu        sync.Mutex
	forgotten int // how many
	lines     []Line
	ended     bool
	followers int
	changed   chan struct{}
}

func newFeed() *feed { return &feed{process: rand.Text(), changed: make(chan struct{})} }

func (f *feed) add(line Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if len(f.lines) >= keptLines {
		f.forgotten += keptLines / 2
		f.lines = slices.Clone(f.lines[keptLines/2:])
	}
	f.lines = append(f.lines, line)
	f.ended = line.End != nil
	f.wake()
}

// wake wakes those who wait. The caller holds the lock.
func (f *feed) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// since returns the lines from the n-th on, or from the first one that is not forgotten; the number of that; whether
// they are all that there will be; and a channel that is closed when there are more.
func (f *feed) since(n int) (lines []Line, first int, ended bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = min(max(n, f.forgotten), f.forgotten+len(f.lines))
	return slices.Clip(f.lines[first-f.forgotten:]), first, f.ended, f.changed
}

// follow counts those who follow; the caller calls left once.
func (f *feed) follow() (left func()) {
	count := func(n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followers += n
		f.wake()
	}
	count(1)
	return func() { count(-1) }
}

// awaitRead waits until the last follower has received the end of the feed.
func (f *feed) awaitRead(ctx context.Context) {
	for {
		f.mu.Lock()
		followers, changed := f.followers, f.changed
		f.mu.Unlock()
		if followers == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Show sends an event to those that follow the campaign; it does not block. The single runs are not shown to them.
func (s *Server) Show(e progress.Event) {
	if !e.Aside {
		s.feed.add(Line{Event: &e})
	}
}

// Ended sends those that follow the campaign how it has ended. Only the first time counts.
func (s *Server) Ended(e End) { s.feed.add(Line{End: &e}) }

// The query of a follower: the process that has sent the lines before the one from which it wants to go on. The answer
// says which process it is, and which line comes first.
const (
	queryProcess  = "process"
	queryFrom     = "from"
	headerProcess = "Trommel-Process"
	headerFrom    = "Trommel-From"
)

// sendLines sends the lines so far and those to come, one JSON object a line, until the end.
func (s *Server) sendLines(w http.ResponseWriter, r *http.Request) {
	n := 0
	if r.URL.Query().Get(queryProcess) == s.feed.process {
		n, _ = strconv.Atoi(r.URL.Query().Get(queryFrom)) // text that is not a number is 0
	}
	defer s.feed.follow()()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set(headerProcess, s.feed.process)
	_, n, _, _ = s.feed.since(n)
	w.Header().Set(headerFrom, strconv.Itoa(n))
	to, control := json.NewEncoder(w), http.NewResponseController(w)
	for {
		lines, first, ended, changed := s.feed.since(n)
		// Who does not read is given up.
		_ = control.SetWriteDeadline(time.Now().Add(time.Minute))
		for _, line := range lines {
			if to.Encode(line) != nil {
				return
			}
		}
		if control.Flush() != nil || ended {
			return
		}
		n = first + len(lines)
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// Attach shows a campaign's events, from its beginning, until it ends. If the campaign cannot be reached, it tries
// again for as long as there is patience, also if the campaign is resumed meanwhile.
func Attach(
	ctx context.Context, server, token string, patience time.Duration, show progress.Listener, say func(string),
) (*End, error) {
	c, err := newClient(server, token, "", patience, say)
	if err != nil {
		return nil, err
	}
	process, n := "", 0
	for {
		var resp *http.Response
		err := c.retried(ctx, "follow the campaign", func(ctx context.Context) (err error) {
			resp, err = c.once(ctx, http.MethodGet,
				fmt.Sprintf("/v1/told?%s=%s&%s=%d", queryProcess, process, queryFrom, n), nil)
			return err
		})
		if err != nil {
			return nil, err
		}
		process = resp.Header.Get(headerProcess)
		if n, err = strconv.Atoi(resp.Header.Get(headerFrom)); err != nil {
			err = errors.Join(err, resp.Body.Close())
			return nil, fmt.Errorf("follow the campaign: it is of another version: %w", err)
		}
		for lines := json.NewDecoder(resp.Body); ; n++ {
			var line Line
			if lines.Decode(&line) != nil {
				break // it breaks off: go on
			}
			if line.End != nil {
				_ = resp.Body.Close()
				return line.End, nil
			}
			if line.Event != nil {
				show.Show(*line.Event)
			}
		}
		_ = resp.Body.Close()
	}
}
