package campaign

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/plan"
)

// CheckSkips checks what the suite says of plans that it leaves out.
func CheckSkips(suite *plan.Suite) error {
	var names []string
	for _, p := range pattern.Patterns() {
		names = append(names, p.Name)
	}
	err := suite.CheckSkips(func(s plan.Skip) (string, error) {
		if s.Pattern == "" || slices.Contains(names, s.Pattern) {
			return "", nil
		}
		return "pattern", fmt.Errorf("unknown pattern %q (known: %s)", s.Pattern, strings.Join(names, ", "))
	})
	return errors.Join(err, manifests.CheckSkips(suite, preflight.KubernetesOf(suite)))
}
