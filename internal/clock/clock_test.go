package clock

import (
	"context"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimersFireInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		ctx := With(t.Context(), c)
		second, first := NewTimer(ctx, 2*time.Hour), NewTimer(ctx, time.Hour)
		called := make(chan struct{})
		AfterFunc(ctx, 30*time.Minute, func() { close(called) })
		ticker := NewTicker(ctx, 45*time.Minute)
		defer ticker.Stop()
		if next, ok := c.Next(); !ok || Until(ctx, next) != 30*time.Minute {
			t.Errorf("next in %s (%t)", Until(ctx, next), ok)
		}
		began := Now(ctx)
		c.Advance(time.Hour)
		<-called
		<-first.C
		<-ticker.C
		if second.Stop() != true || second.Reset(time.Hour) {
			t.Error("the second timer has fired")
		}
		if passed := Since(ctx, began); passed != time.Hour {
			t.Errorf("%s have passed", passed)
		}
		// Without being advanced it runs with the machine's clock.
		<-ticker.C
		if passed := Since(ctx, began); passed != 90*time.Minute {
			t.Errorf("%s have passed", passed)
		}
		<-second.C
	})
}

// On a busy machine the clock is slow, and then behind the machine's. What compares a deadline with that must not take
// it for over.
func TestConnectBehindTheMachine(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := New()
	c.change(func(l Line) Line { return Line{Base: l.Base, Ahead: l.Ahead - int64(time.Minute)} })
	ctx, cancel := WithTimeout(With(t.Context(), c), 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		ctx := With(t.Context(), c)
		why := errors.New("why")
		for _, tt := range []struct {
			name   string
			end    func(cancel context.CancelFunc)
			err    error
			cause  error
			within time.Duration
		}{
			{"expired", func(context.CancelFunc) { c.Advance(time.Hour) }, context.DeadlineExceeded, why, time.Hour},
			{"canceled", func(cancel context.CancelFunc) { cancel() }, context.Canceled, context.Canceled, time.Hour},
			{"at once", func(context.CancelFunc) {}, context.DeadlineExceeded, why, -1},
		} {
			parent, cancel := WithTimeoutCause(ctx, tt.within, why)
			child, cancelChild := context.WithCancel(parent)
			grandchild, cancelGrandchild := WithTimeout(child, 2*time.Hour)
			if at, ok := grandchild.Deadline(); ok {
				t.Errorf("%s: the grandchild's deadline is %s", tt.name, at)
			}
			tt.end(cancel)
			for i, of := range []context.Context{parent, child, grandchild} {
				<-of.Done()
				if of.Err() != tt.err || !errors.Is(context.Cause(of), tt.cause) {
					t.Errorf("%s, %d: %v (%v)", tt.name, i, of.Err(), context.Cause(of))
				}
			}
			cancelGrandchild()
			cancelChild()
			cancel()
		}
		synctest.Wait()
		if _, ok := c.Next(); ok {
			t.Error("a timer is left")
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		ctx, cancel := context.WithCancel(With(t.Context(), c))
		done := make(chan error)
		go func() { done <- Sleep(ctx, time.Hour) }()
		synctest.Wait()
		c.Advance(time.Hour)
		if err := <-done; err != nil {
			t.Error(err)
		}
		cancel()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := Sleep(context.Background(), time.Millisecond); err != nil {
			t.Error(err)
		}
	})
}

// A jump shortens no wait and no deadline; what is due by then comes at once.
// What keeps the clock is known by reason, also while it lasts.
func TestWhatKeepsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		first, second, goesOn, other := c.HoldFor("a"), c.HoldFor("a"), c.HoldFor("b"), c.HoldFor("none")
		time.Sleep(time.Second)
		first(true)
		first(true)
		other(false)
		time.Sleep(time.Second)
		second(true)
		if got, want := c.Kept(), map[string]time.Duration{"a": 3 * time.Second, "b": 2 * time.Second}; !maps.Equal(
			got, want) {
			t.Errorf("kept for %v, want %v", got, want)
		}
		if !c.Held() {
			t.Error("not held")
		}
		if goesOn(true); c.Held() {
			t.Error("held")
		}
		var machine *Clock
		machine.HoldFor("a")(true)
		if got := machine.Kept(); len(got) > 0 {
			t.Errorf("the machine's clock was kept for %v", got)
		}
	})
}

func TestJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		ctx := With(t.Context(), c)
		began := Now(ctx)
		patient := NewTimer(ctx, time.Minute)
		limited, cancel := WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		due, later := NewTimer(Due(ctx), time.Hour), NewTimer(Due(ctx), 30*time.Hour)
		called := make(chan struct{})
		AfterFunc(Due(ctx), 2*time.Hour, func() { close(called) })
		ticker := NewTicker(ctx, 5*time.Hour)
		defer ticker.Stop()
		c.Jump(-time.Hour)
		c.Jump(24 * time.Hour)
		if passed := Since(ctx, began); passed != 24*time.Hour {
			t.Errorf("%s have passed", passed)
		}
		<-due.C
		<-called
		<-ticker.C
		<-patient.C
		if passed := Since(ctx, began); passed != 24*time.Hour+time.Minute {
			t.Errorf("the timer has fired after %s", passed)
		}
		<-limited.Done()
		if passed := Since(ctx, began); passed != 24*time.Hour+2*time.Minute {
			t.Errorf("the deadline was after %s", passed)
		}
		<-later.C
		if passed := Since(ctx, began); passed != 30*time.Hour {
			t.Errorf("the later timer has fired after %s", passed)
		}
	})
}
