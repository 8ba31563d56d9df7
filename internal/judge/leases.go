package judge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// leases judges whether a process wrote after another process of its controller had taken the leader election lock. It
// is a note: leader election by leases does not keep a write from taking effect that was under way, and nothing shows
// when a write was decided.
type leases struct{}

func (leases) Is() Traits { return is("leases", allClusters, whatHappened) }

func (leases) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	type holder struct {
		session uint64
		name    string
		event   *record.Event
		version uint64
	}
	locks := map[string]map[string]holder{} // by controller and lock
	led := map[uint64]string{}              // the lock that a session has held
	first := map[uint64]int{}               // index of the finding about a session
	more := map[int]int{}
	var findings []record.Finding
	for i := range e.Events {
		o := e.Events[i].Observation
		if o == nil || o.Point != wire.ControllerWrite || o.Phase != wire.After || !o.Done() {
			continue
		}
		var object struct {
			Metadata struct {
				ResourceVersion uint64 `json:"resourceVersion,string"`
			} `json:"metadata"`
			Spec struct {
				HolderIdentity string `json:"holderIdentity"`
			} `json:"spec"`
		}
		if json.Unmarshal(o.Object, &object) != nil {
			continue
		}
		if o.Election {
			if object.Spec.HolderIdentity == "" {
				continue // it was given back
			}
			if locks[o.By] == nil {
				locks[o.By] = map[string]holder{}
			}
			lock := o.Namespace + "/" + o.Name
			if locks[o.By][lock].session != o.Session {
				locks[o.By][lock] = holder{o.Session, object.Spec.HolderIdentity, &e.Events[i],
					object.Metadata.ResourceVersion}
			}
			led[o.Session] = lock
			continue
		}
		lock, elected := led[o.Session]
		now := locks[o.By][lock]
		// Resource versions tell the order of the writes; observations may arrive in another one.
		if !elected || now.session == o.Session || object.Metadata.ResourceVersion <= now.version {
			continue
		}
		if at, known := first[o.Session]; known {
			more[at]++
			continue
		}
		first[o.Session] = len(findings)
		findings = append(findings, record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeLease, Subject: o.By, Time: e.Events[i].Time,
			Title: fmt.Sprintf("a process of %s wrote after it had lost its lease: %s %s/%s/%s %s", o.By, o.Op,
				cmp.Or(o.Kind, o.Resource), o.Namespace, o.Name, e.moment(e.Events[i].Time)),
			Detail: fmt.Sprintf("%s had taken the lease %s %s", now.name, lock, e.moment(now.event.Time)),
		})
	}
	for at, n := range more {
		findings[at].Detail += fmt.Sprintf("\nand it wrote %d more times", n)
	}
	return findings, nil
}
