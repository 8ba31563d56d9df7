package order

import (
	"strings"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// types are the types of objects of which a controller under test has received an event so far.
//
// An event of another type at an API server is for the control plane alone. If it came late, that would only show what
// Kubernetes' own controllers do with old state. So such a step goes on before others, unless a schedule names it.
type types map[string]bool

// note takes in the streams of steps that wait.
func (t types) note(streams []string) {
	for _, stream := range streams {
		if by, typ, ok := strings.Cut(stream, receives); ok && !plan.IsAPIServer(strings.TrimSpace(by)) {
			t[typ] = true
		}
	}
}

// lack reports whether a stream is that of an API server's events of a type of which no controller has received one.
func (t types) lack(stream string) bool {
	by, typ, ok := strings.Cut(stream, receives)
	return ok && plan.IsAPIServer(strings.TrimSpace(by)) && !t[typ]
}

// lacking reports, for each choice of a run, whether its step was one that only the control plane receives.
func lacking(choices []record.Choice) []bool {
	all, received := make([]bool, len(choices)), types{}
	for i, c := range choices {
		received.note(c.Enabled)
		all[i] = received.lack(c.Stream)
	}
	return all
}
