package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// decodeJSON decodes as Kubernetes does: whole numbers are int64. A field that stands twice is an error.
func decodeJSON(text []byte) (any, error) {
	var v any
	twice, err := kjson.UnmarshalStrict(text, &v)
	var number *json.UnmarshalTypeError
	if errors.As(err, &number) {
		return nil, fmt.Errorf("%s is too large", shorten(number.Value))
	}
	if err != nil {
		return nil, err
	}
	if len(twice) > 0 {
		return nil, twice[0]
	}
	return wholes(v), nil
}

// wholes makes numbers that were written with a fraction or an exponent and are whole (1.0, 1e3) int64 too.
func wholes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, w := range v {
			switch w.(type) {
			case map[string]any, []any, float64:
				v[k] = wholes(w)
			}
		}
	case []any:
		for i, w := range v {
			v[i] = wholes(w)
		}
	case float64:
		return whole(v)
	}
	return v
}
