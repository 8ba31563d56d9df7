package record

import "time"

// Choice is one choice of an ordered run: at a moment of rest, which of the steps that waited went on. See
// docs/orders.md.
type Choice struct {
	Number int `json:"number"` // of the choice, from 1
	// Stream is that of the step that went on; TimeStream: the clock moved instead.
	Stream string `json:"stream"`
	Step   int    `json:"step"`           // its number in the stream, from 1
	What   string `json:"what,omitempty"` // the step in words
	// Event is the Seq of the observation that goes on; 0: the step is none, such as one of the workload.
	Event int `json:"event,omitempty"`
	// Enabled are the streams of all steps that waited, sorted. Time could pass in any case.
	Enabled []string `json:"enabled"`
	// Diverged says what the given schedule expected instead, from the first choice on at which that was impossible.
	Diverged string `json:"diverged,omitempty"`
}

// Waited returns, for each choice, the index of the first one at which the step that went on there already waited.
// Those of TimeStream wait for nothing: it is their own index.
func Waited(choices []Choice) []int {
	first := make([]int, len(choices))
	since := map[string]int{} // by stream: since when its next step waits
	for i, c := range choices {
		for _, stream := range c.Enabled {
			if _, known := since[stream]; !known {
				since[stream] = i
			}
		}
		first[i] = i
		if c.Stream != TimeStream {
			first[i] = since[c.Stream]
			delete(since, c.Stream)
		}
	}
	return first
}

// TimeStream is the stream of choices that let the clock move.
const TimeStream = "time"

// Choices are those of the run, in order, with the times at which they were made.
func (r *Run) Choices() (all []Choice, at []time.Time) {
	for _, e := range r.Events {
		if e.Choice != nil {
			all, at = append(all, *e.Choice), append(at, e.Time)
		}
	}
	return all, at
}
