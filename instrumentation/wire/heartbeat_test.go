package wire

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHeartbeat(t *testing.T) {
	const silence = 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan error)
		var answers atomic.Bool
		answers.Store(true)
		var events []string
		start := time.Now()
		said := func(what string) { events = append(events, what+" "+time.Since(start).Round(time.Second).String()) }
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			Heartbeat{
				Ping: func() error {
					if answers.Load() {
						return nil
					}
					return <-answer
				},
				Silence: silence, Silent: func() { said("silent") }, Back: func() { said("back") },
			}.Run(stop)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		answers.Store(false)
		time.Sleep(10 * time.Minute)
		answers.Store(true)
		answer <- nil
		time.Sleep(time.Minute)
		synctest.Wait()
		close(stop)
		<-done
		// The ping after a minute goes unanswered for ten ticks.
		if len(events) != 2 || events[0] != "silent 1m20s" || events[1] != "back 11m0s" {
			t.Errorf("%q", events)
		}
	})
}

func TestHeartbeatEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Heartbeat{
			Ping: func() error { return errors.New("closed") }, Silence: time.Second,
			Silent: func() { t.Error("silent") },
		}.Run(nil)
	})
}

func TestHeartbeatWithoutALimitDoesNothing(t *testing.T) {
	Heartbeat{Ping: func() error { t.Error("ping"); return nil }}.Run(nil)
}
