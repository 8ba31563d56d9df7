package manager

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/notify"
)

// TestNotices: a webhook hears what happens to a disruption.
func TestNotices(t *testing.T) {
	notices := make(chan notify.Event, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n notify.Event
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		notices <- n
	}))
	defer server.Close()
	o := options()
	o.Notify = &notify.Options{URL: server.URL, Reasons: []string{"*"}}
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(1)
	d := f.disrupt("told", hangs(nil))
	f.phase(d, chaos.Injected)
	for n := range notices {
		if n.Namespace != f.namespace || n.Kind != "Disruption" || n.Name != "told" {
			t.Errorf("%+v", n)
		}
		if n.Reason == "Injected" {
			if n.Note != "1 of 1 targets" || n.Type != "Normal" || n.Time.IsZero() {
				t.Errorf("%+v", n)
			}
			break
		}
	}
	f.end(d)
}
