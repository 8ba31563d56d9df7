package campaign

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// denial is how an action fails because of an admission webhook, which is named.
var denial = regexp.MustCompile(`failed: admission webhook (".*?") denied the request`)

// deniedRule is why plans are left out after one like them was denied.
const deniedRule = "an admission webhook denies the write to other clients"

// clientWrite is a kind of write of another client.
type clientWrite struct {
	action  plan.ActionType
	cluster string
	object  plan.ResourceKey // only its type and group
	parts   string           // of a patch: the fields of the spec, the metadata and so on
}

// clientWriteOf is the only write of a plan as another client; not ok: it has none, or several.
func clientWriteOf(p *plan.Plan) (w clientWrite, ok bool) {
	for i := range p.Actions {
		a := &p.Actions[i]
		if !plan.Has[*plan.Write](a) {
			continue
		}
		if ok {
			return clientWrite{}, false
		}
		key := plan.ResourceKey{Type: a.ResourceKey.Type, Group: a.ResourceKey.Group}
		w, ok = clientWrite{a.Type, a.Cluster, key, parts(a.Patch)}, true
	}
	return w, ok
}

// parts are the fields that a patch changes, two levels deep.
func parts(patch any) string {
	var all []string
	switch patch := patch.(type) {
	case map[string]any:
		for field, value := range patch {
			below, _ := value.(map[string]any)
			all = append(all, field+"/"+strings.Join(slices.Sorted(maps.Keys(below)), ","))
		}
	case []any: // the operations of a JSON patch
		for _, o := range patch {
			operation, _ := o.(map[string]any)
			path, _ := operation["path"].(string)
			steps := strings.Split(strings.TrimPrefix(path, "/"), "/")
			all = append(all, strings.Join(steps[:min(2, len(steps))], "/"))
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// dropDenied takes away the plans in which another client does what an admission webhook has just denied: it would deny
// that of each object. The caller holds the lock.
func (q *queue) dropDenied(t *task, o *result.Outcome) {
	by := denial.FindStringSubmatch(o.Reason)
	write, ok := clientWriteOf(t.plan)
	if q.chosen || o.Status != result.Inconclusive || by == nil || !ok {
		return
	}
	q.refused = append(q.refused, write)
	if n := q.dropLike(write); n > 0 {
		q.Say("%s: the webhook %s denies other clients such a write; %s like it left out", t.plan.TestName, by[1],
			wording.Count(n, "plan"))
	}
}

// dropLike takes away the plans with such a write. It returns how many these are. The caller holds the lock.
func (q *queue) dropLike(write clientWrite) int {
	n := q.dropPlans(func(p *schedule.Plan) bool {
		other, ok := clientWriteOf(q.tasks[p].plan)
		return ok && other == write
	})
	q.denied += n
	return n
}
