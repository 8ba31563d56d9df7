package judge

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/judge/processlog"
	"github.com/trommel-dev/trommel/record"
)

// sideBySide is how client-go prints a changed object (apimachinery's diff.ObjectGoPrintSideBySide).
func sideBySide(typ, is, was string) string {
	left, right := strings.Split(is, "\n"), strings.Split(was, "\n")
	width := 0
	for _, line := range append(left, right...) {
		width = max(width, len(line)+1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "CACHE %s[2] ALTERED!\n", typ)
	for i := range max(len(left), len(right)) {
		var l, r string
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		fmt.Fprintf(&b, "%-*s%s\n", width, l, r)
	}
	return b.String() + "\n"
}

const cachedService = `(*v1.Service)({
  TypeMeta: (v1.TypeMeta) {
    Kind: (string) "",
  },
  ObjectMeta: (v1.ObjectMeta) {
    Name: (string) (len=6) "active",
    Namespace: (string) (len=7) "default",
    OwnerReferences: ([]v1.OwnerReference) <nil>,
  },
  Spec: (v1.ServiceSpec) {
    Ports: ([]v1.ServicePort) (len=1) {
      (v1.ServicePort) {
        Name: (string) "",
      }
    },
    Selector: (map[string]string) (len=1) {
      (string) (len=3) "app": (string) (len=2) "bg"
    },
  },
})`

// A controller that client-go has ended because it changes objects in its cache: what it has changed. All else that
// went wrong may be due to that.
func TestAlteredCaches(t *testing.T) {
	changed := strings.Replace(cachedService, `"bg"`+"\n", `"bg",`+"\n"+
		`      (string) (len=4) "hash": (string) (len=3) "1b2"`+"\n", 1)
	untyped := func(color string) string {
		return `(*unstructured.Unstructured)({
  Object: (map[string]interface {}) (len=2) {
    (string) (len=8) "metadata": (map[string]interface {}) (len=2) {
      (string) (len=4) "name": (string) (len=1) "a",
      (string) (len=9) "namespace": (string) (len=1) "b"
    },
    (string) (len=4) "spec": (map[string]interface {}) (len=1) {
      (string) (len=5) "color": (string) (len=4) "` + color + `"
    }
  }
})`
	}
	log := "I1127 started\n" + sideBySide("*v1.Service", changed, cachedService) +
		"I1127 between\n" +
		sideBySide("*unstructured.Unstructured", untyped("blue"), untyped("red")) +
		"panic: cache *v1.Service modified\n\ngoroutine 224 [running]:\nk8s.io/client-go/tools/cache\n"
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	got := processlog.Exits("", []record.Process{
		{Controller: "op", LogFile: file, Ended: time.Unix(1, 0), ExitCode: 2},
	})
	want := []record.Finding{{
		Severity: record.SeverityBug, Judge: record.JudgePanic, Subject: "op",
		Title: "controller op changes objects in its cache: *v1.Service, *unstructured.Unstructured",
		Detail: `*v1.Service default/active
  now: Selector: "hash": "1b2"
*unstructured.Unstructured b/a
  delivered: "spec": "color": "red"
  now: "spec": "color": "blue"`,
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record.Finding{}, "Time")); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	other := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeWorkload, Title: "step 2 timed out"}
	e := evidence(tale(t))
	e.Found = []record.Finding{other}
	all := Hear(t.Context(), e, []Judge{says(got), says{{Severity: record.SeverityBug, Judge: record.JudgeBaseline,
		Title: "never created"}}})
	all = append(all, e.Found...)
	var severities []record.Severity
	for _, f := range all {
		severities = append(severities, f.Severity)
	}
	if diff := cmp.Diff([]record.Severity{record.SeverityBug, record.SeverityNote, record.SeverityNote},
		severities); diff != "" {
		t.Errorf("%v\n%s", all, diff)
	}
}

// says is a judge that has found something.
type says []record.Finding

func (says) Is() Traits { return is("says", allClusters, whatHappened) }

func (s says) Judge(context.Context, Evidence) ([]record.Finding, error) { return s, nil }

// Such a finding names the last write of one of the objects, if there was one before it.
func TestLastWriteOfWhatIsChangedInACache(t *testing.T) {
	f := record.Finding{
		Time:   at(5),
		Detail: "*v1.Service default/active\n  now: Selector: \"hash\": \"1b2\"\n*v1.Node node-1\nand 2 objects more",
	}
	write := func(second float64, by, resource, namespace, name string) record.Event {
		return record.Event{Seq: int(second), Time: at(second), Observation: &record.Observation{
			By: by, Point: wire.ControllerWrite, Phase: wire.Before, Resource: resource, Namespace: namespace, Name: name,
			Callers: record.Callers{{Function: "f", File: "main.go", Line: int(second)}},
		}}
	}
	for _, tt := range []struct {
		name   string
		events []record.Event
		want   int
	}{
		{"none", nil, 0},
		{"the last one before", []record.Event{
			write(1, "op", "services", "default", "active"), write(3, "op", "nodes", "", "node-1"),
			write(6, "op", "nodes", "", "node-1"),
		}, 3},
		{"others", []record.Event{
			write(1, "other", "nodes", "", "node-1"), write(2, "op", "pods", "default", "active"),
			write(3, "op", "services", "default", "b"),
		}, 0},
	} {
		e := Evidence{Events: tt.events}
		if got := e.lastWrite("op", f); got.Event != tt.want || got.Callers[0].Line != tt.want {
			t.Errorf("%s: %+v, want the event %d", tt.name, got, tt.want)
		}
	}
}
