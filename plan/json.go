package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mailru/easyjson/jlexer"
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

// decodeObject decodes the state of an object into the same types as decodeJSON, but takes all JSON, also with
// duplicate fields and numbers that are too large. The caller of an observation waits for it, so it reads the text only
// once.
func decodeObject(text []byte) (any, error) {
	l := &jlexer.Lexer{Data: text}
	v := readJSON(l, 0)
	l.Consumed()
	return v, l.Error()
}

// maxJSONDepth is that of encoding/json.
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
		f, _ := text.Float64() // infinite where it is too large
		return whole(f)
	}
	l.Null() // or an error
	return nil
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
