package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mailru/easyjson/jlexer"
	kjson "sigs.k8s.io/json"
)

// decodeJSON decodes as Kubernetes does: whole numbers are int64. A duplicate field is an error.
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

// decodeObject decodes the state of an object into the same types as decodeJSON, but accepts all JSON, including
// duplicate fields and numbers that are too large. Observed processes wait for it, so it reads the text only once.
func decodeObject(text []byte) (any, error) {
	l := &jlexer.Lexer{Data: text}
	v := readJSON(l, 0)
	l.Consumed()
	return v, l.Error()
}

// maxJSONDepth is the limit of encoding/json.
const maxJSONDepth = 10_000

func readJSON(l *jlexer.Lexer, depth int) any {
	switch {
	case depth > maxJSONDepth:
		l.AddError(errors.New("nested too deeply"))
		return nil
	case l.IsDelim('{'):
		m := map[string]any{}
		for l.Delim('{'); !l.IsDelim('}'); l.WantComma() {
			key := l.String()
			l.WantColon()
			m[key] = readJSON(l, depth+1)
		}
		l.Delim('}')
		return m
	case l.IsDelim('['):
		list := []any{}
		for l.Delim('['); !l.IsDelim(']'); l.WantComma() {
			list = append(list, readJSON(l, depth+1))
		}
		l.Delim(']')
		return list
	}
	switch l.CurrentToken() {
	case jlexer.TokenString:
		return l.String()
	case jlexer.TokenBool:
		return l.Bool()
	case jlexer.TokenNumber:
		text := l.JsonNumber()
		if i, err := text.Int64(); err == nil {
			return i
		}
		f, _ := text.Float64() // infinite if it is too large
		return whole(f)
	}
	l.Null() // or an error
	return nil
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
		return whole(v)
	}
	return v
}
