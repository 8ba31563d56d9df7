// Package jsonvalue holds the values that JSON has as plans hold them: map[string]any, []any, string, int64, float64,
// bool and nil. JSON does not distinguish 1 and 1.0: both are int64.
package jsonvalue

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	kjson "sigs.k8s.io/json"

	"github.com/trommel-dev/trommel/internal/wording"
)

// Decode decodes as Kubernetes does: whole numbers are int64. A duplicate field is an error.
func Decode(text []byte) (any, error) {
	var v any
	twice, err := kjson.UnmarshalStrict(text, &v)
	var number *json.UnmarshalTypeError
	if errors.As(err, &number) {
		return nil, fmt.Errorf("%s is too large", wording.Shorten(number.Value))
	}
	if err != nil {
		return nil, err
	}
	if len(twice) > 0 {
		return nil, twice[0]
	}
	return wholes(v), nil
}

// DecodeObject decodes the state of an object into the same types as Decode, but accepts all JSON, including duplicate
// fields. A number that is too large has no value; an API server has no such numbers.
func DecodeObject(text []byte) (any, error) {
	var v any
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &v)
	var number *json.UnmarshalTypeError
	if errors.As(err, &number) {
		err = nil
	}
	return wholes(v), err
}

// wholes also turns whole numbers that were written with a fraction or an exponent (1.0, 1e3) into int64.
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
		return Whole(v)
	}
	return v
}

// Whole turns a number without a fraction into an int64.
func Whole(f float64) any {
	if math.Trunc(f) == f && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return f
}

// Each visits a value and all values in it. It returns false if they are nested deeper than depth.
func Each(v any, depth int, visit func(any)) bool {
	if depth < 0 {
		return false
	}
	visit(v)
	ok := true
	switch v := v.(type) {
	case map[string]any:
		for _, w := range v {
			ok = Each(w, depth-1, visit) && ok
		}
	case []any:
		for _, w := range v {
			ok = Each(w, depth-1, visit) && ok
		}
	}
	return ok
}

// Compact writes a value on one line and shortens long texts.
func Compact(v any) string {
	raw, err := json.Marshal(cut(v))
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}

func cut(v any) any {
	switch v := v.(type) {
	case string:
		return wording.Shorten(v)
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, w := range v {
			m[k] = cut(w)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, w := range v {
			list[i] = cut(w)
		}
		return list
	}
	return v
}
