package wire

import "time"

// heartbeats is how many pings in a row go unanswered until a peer counts as silent.
const heartbeats = 10

// Heartbeat watches a peer that can stop answering although its connection lasts: a process that is stopped, in a
// debugger or swapped out.
//
// Time in which the watching process is stopped itself does not count, because it counts its own ticks. Otherwise every
// peer would look silent to a process that has just been continued.
type Heartbeat struct {
	Ping    func() error  // returns when the peer has answered, or an error when the connection has ended
	Silence time.Duration // how long the peer may leave a ping unanswered; zero: forever
	Silent  func()        // called once when it has been silent for that long
	Back    func()        // called when it answers again after Silent; may be nil
}

// Run watches until stop is closed or Ping fails. Silent and Back are called by Run, one at a time.
func (h Heartbeat) Run(stop <-chan struct{}) {
	if h.Silence <= 0 {
		return
	}
	ticker := time.NewTicker(h.Silence/heartbeats + 1)
	defer ticker.Stop()
	answers := make(chan error, 1)
	missed, waiting, silent := 0, false, false
	for {
		select {
		case <-stop:
			return
		case err := <-answers:
			if err != nil {
				return
			}
			missed, waiting = 0, false
			if silent {
				silent = false
				if h.Back != nil {
					h.Back()
				}
			}
		case <-ticker.C:
			if !waiting {
				waiting = true
				go func() { answers <- h.Ping() }()
				continue
			}
			if missed++; missed >= heartbeats && !silent {
				silent = true
				h.Silent()
			}
		}
	}
}
