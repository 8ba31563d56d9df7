package plan

import (
	"fmt"
	"reflect"
	"time"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Marshal writes a plan in its canonical form: this package's own format, fields in a fixed order, no defaults. Parsing
// it gives an equal plan. Plans with the same meaning but for names and texts have the same form.
func Marshal(p *Plan) ([]byte, error) {
	q := *p
	q.APIVersion, q.Kind = APIVersion, "TestPlan"
	text, err := layout.Marshal(reflect.ValueOf(q))
	if err != nil {
		return nil, fmt.Errorf("write plan %q: %w", p.TestName, err)
	}
	return text, nil
}

// MarshalSuite writes a suite without its defaults. Parsing it gives an equal suite, complete and checked: this is how
// a suite that was built in Go becomes one that plans can run with.
func MarshalSuite(s *Suite) ([]byte, error) {
	q := *s
	q.APIVersion, q.Kind = APIVersion, "Suite"
	text, err := layout.Marshal(reflect.ValueOf(q))
	if err != nil {
		return nil, fmt.Errorf("write suite: %w", err)
	}
	return text, nil
}

// FormatDuration writes a duration as plans do: 1m rather than 1m0s.
func FormatDuration(d time.Duration) string { return yamlfile.FormatDuration(d) }
