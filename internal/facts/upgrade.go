package facts

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/record"
)

// installed is when the last installation of another build began in a recorded run; zero: there was none.
func installed(r *record.Run) (last time.Time) {
	for _, a := range r.Actions {
		if a.Upgrade != "" && a.Began.After(last) {
			last = a.Began
		}
	}
	for _, s := range r.Meta.Steps {
		if s.Upgrade != "" && s.Started.After(last) {
			last = s.Started
		}
	}
	return last
}

// applied is metav1.ManagedFieldsOperationApply. Judges do not depend on that package, so it is repeated here.
const applied = "Apply"

// Installs reports whether manifests were applied to the object.
func (c *Change) Installs() bool {
	return c.Cur != nil && slices.ContainsFunc(c.writers, func(w record.FieldManager) bool {
		return w.Manager == record.PlanManager && w.Operation == applied &&
			w.Subresource == ""
	})
}
