package propose

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// percentage is a share of replicas, as in maxUnavailable.
var percentage = regexp.MustCompile(`^([1-9][0-9]?)%$`)

// binary is a text that can only be an amount of bytes.
var binary = regexp.MustCompile(`^[0-9.]+[KMGTPE]i$`)

// isQuantity reports whether a field is a resource.Quantity: by its schema, as generators write it and older ones
// wrote it, by its value, or by its name.
func isQuantity(s *apiextensions.JSONSchemaProps, p place) bool {
	text, isText := p.value.(string)
	if p.present && isText {
		if _, err := resource.ParseQuantity(text); err != nil {
			return false
		}
	}
	switch {
	case strings.Contains(s.Pattern, "numkMGTPE") || s.Format == "quantity":
		return true
	case s.Type != "string" || s.Pattern != "" || !isText:
		return false
	}
	return binary.MatchString(text) || isAmount(p.path)
}

// isAmount reports whether a field holds an amount of a resource, by its path.
func isAmount(path []string) bool {
	name := strings.ToLower(path[len(path)-1])
	if len(path) > 1 && slices.Contains([]string{"requests", "limits"}, path[len(path)-2]) {
		return true
	}
	return slices.ContainsFunc([]string{"cpu", "memory", "storage", "storagesize", "disksize", "volumesize"},
		func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// isStorage reports whether a quantity is the size of a volume, which can grow and not shrink.
func isStorage(path []string) bool {
	last := strings.ToLower(path[len(path)-1])
	if last == "cpu" || last == "memory" {
		return false
	}
	return slices.ContainsFunc(path, func(step string) bool {
		lower := strings.ToLower(step)
		return slices.ContainsFunc([]string{"storage", "volume", "persist", "pvc", "disk"},
			func(word string) bool { return strings.Contains(lower, word) })
	})
}

// quantity changes an amount or a percentage.
func (w *walker) quantity(s *apiextensions.JSONSchemaProps, p place) {
	sized := isQuantity(s, p)
	switch v := p.value.(type) {
	case string:
		if m := percentage.FindStringSubmatch(v); m != nil && !sized {
			if n, err := strconv.Atoi(m[1]); err == nil && n <= 50 {
				w.add(p, rankQuantity, Change{Label: "grow", To: strconv.Itoa(2*n) + "%"})
				return
			}
		}
		if q, err := resource.ParseQuantity(v); err == nil && q.Sign() > 0 {
			w.amount(p, q)
			return
		}
	case float64:
		// A size that is a plain number is doubled like others; a count such as maxUnavailable goes up by one.
		c := Change{Label: "grow", To: v + 1}
		if sized {
			c.To, c.OneWay = 2*v, isStorage(p.path)
		}
		if c.To != v {
			w.add(p, rankQuantity, c)
			return
		}
	}
	if p.present {
		w.drop(p, "%s is neither a quantity nor a percentage that can grow", show(p.value))
		return
	}
	if least, ok := leastAmounts[p.name()]; ok && sized {
		w.add(p, rankQuantity, Change{Label: "set", To: least})
		return
	}
	w.drop(p, "not set in the sample, and the schema has no value for it")
}

// leastAmounts are amounts that every container has.
var leastAmounts = map[string]string{"cpu": "100m", "memory": "64Mi"}

// amount doubles a quantity. A request that would then be above its limit is halved.
func (w *walker) amount(p place, q resource.Quantity) {
	doubled := q.DeepCopy()
	doubled.Add(q)
	grow := Change{Label: "grow", To: doubled.String(), OneWay: isStorage(p.path)}
	if grow.OneWay || !slices.Contains(p.path, "requests") {
		w.add(p, rankQuantity, grow)
		return
	}
	limit := slices.Clone(p.path)
	limit[slices.Index(limit, "requests")] = "limits"
	text, _ := lookup(w.sample, limit).(string)
	if most, err := resource.ParseQuantity(text); err != nil || doubled.Cmp(most) <= 0 {
		w.add(p, rankQuantity, grow)
		return
	}
	const small = 1000 // below it halves are not whole
	halved := resource.NewQuantity(q.Value()/2, q.Format)
	if q.Value() < small {
		halved = resource.NewMilliQuantity(q.MilliValue()/2, q.Format)
	}
	if halved.IsZero() {
		w.drop(p, "%s is as much as its limit, and cannot be halved", show(p.value))
		return
	}
	w.add(p, rankQuantity, Change{Label: "shrink", To: halved.String()})
}

// isResources reports whether the schema is that of the resources of a container or of a volume claim.
func isResources(s *apiextensions.JSONSchemaProps) bool {
	_, limits := s.Properties["limits"]
	_, requests := s.Properties["requests"]
	return limits && requests
}

// amounts walks the amounts of a mapping whose values are declared as texts, and reports whether there are any.
func (w *walker) amounts(s *apiextensions.JSONSchemaProps, p place, fields map[string]any) bool {
	found := 0
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		at := p.below(key, fields[key], true, true)
		if found < maxKeys && isQuantity(s, at) {
			w.quantity(s, at)
			found++
		}
	}
	return found > 0
}
