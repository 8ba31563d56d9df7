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

// Told is what a campaign tells who follows it: an event, or its end.
type Told struct {
	Event *progress.Event `json:"event,omitempty"`
	End   *End            `json:"end,omitempty"`
}

// End is how a campaign has ended.
type End struct {
	Summary string `json:"summary"`
	Code    int    `json:"code"` // the exit code of its command
}

// keptTold is how much of what it has told a campaign keeps: enough to see where it stands.
const keptTold = 20_000

// told keeps what a campaign tells, for those who follow it from elsewhere. What was told first is forgotten at some
// time.
type told struct {
	process string // tells apart what a campaign told before it was resumed

	mu        sync.Mutex
	forgotten int // how many
	lines     []Told
	ended     bool
	followers int
	changed   chan struct{}
}

func newTold() *told { return &told{process: rand.Text(), changed: make(chan struct{})} }

func (t *told) add(line Told) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if len(t.lines) >= keptTold {
		t.forgotten += keptTold / 2
		t.lines = slices.Clone(t.lines[keptTold/2:])
	}
	t.lines = append(t.lines, line)
	t.ended = line.End != nil
	t.wake()
}

// wake wakes those who wait. The caller holds the lock.
func (t *told) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// since returns what was told from the n-th line on, or from the first one that is not forgotten; the number of that;
// whether it is all there will be; and what is closed when there is more.
func (t *told) since(n int) (lines []Told, first int, ended bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = min(max(n, t.forgotten), t.forgotten+len(t.lines))
	return slices.Clip(t.lines[first-t.forgotten:]), first, t.ended, t.changed
}

// follow counts those who follow; the caller calls left once.
func (t *told) follow() (left func()) {
	count := func(n int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.followers += n
		t.wake()
	}
	count(1)
	return func() { count(-1) }
}

// awaitRead waits until nobody follows any more: who does has been told the end.
func (t *told) awaitRead(ctx context.Context) {
	for {
		t.mu.Lock()
		followers, changed := t.followers, t.changed
		t.mu.Unlock()
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

// Show tells those who follow the campaign of an event; it does not block. The single runs are not shown to them.
func (s *Server) Show(e progress.Event) {
	if !e.Aside {
		s.told.add(Told{Event: &e})
	}
}

// Ended tells those who follow the campaign how it has ended. Only the first time counts.
func (s *Server) Ended(e End) { s.told.add(Told{End: &e}) }

// The query of who follows: the process that has told the lines before the one from which it wants to go on. The answer
// says which process it is, and which line comes first.
const (
	queryProcess  = "process"
	queryFrom     = "from"
	headerProcess = "Trommel-Process"
	headerFrom    = "Trommel-From"
)

// sendTold sends what was told and what is being told, one JSON object a line, until the end.
func (s *Server) sendTold(w http.ResponseWriter, r *http.Request) {
	n := 0
	if r.URL.Query().Get(queryProcess) == s.told.process {
		n, _ = strconv.Atoi(r.URL.Query().Get(queryFrom)) // text that is not a number is 0
	}
	defer s.told.follow()()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set(headerProcess, s.told.process)
	_, n, _, _ = s.told.since(n)
	w.Header().Set(headerFrom, strconv.Itoa(n))
	to, control := json.NewEncoder(w), http.NewResponseController(w)
	for {
		lines, first, ended, changed := s.told.since(n)
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

// Attach shows what a campaign tells, from its beginning, until it ends. If the campaign cannot be reached, it tries
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
			var line Told
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
