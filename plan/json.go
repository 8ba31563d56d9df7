package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeJSON decodes like encoding/json, but whole numbers as int64, and a field that stands twice is an error.
//
// It stands on the way of each plan that is read and of each predicate that is evaluated, so it does in one pass, and
// without copying the strings, what encoding/json does in three: the end of the text, its values, their numbers. Whatever
// is out of the ordinary is left to that package, its errors above all.
func decodeJSON(text string) (any, error) {
	r := jsonReader{text: text}
	r.blanks()
	v, ok := r.value(0)
	r.blanks()
	if ok && r.at == len(text) {
		return v, nil
	}
	if r.err != nil {
		return nil, r.err
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the value")
	}
	return numbers(v)
}

func numbers(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for k, w := range v {
			if v[k], err = numbers(w); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, w := range v {
			if v[i], err = numbers(w); err != nil {
				return nil, err
			}
		}
	case json.Number:
		return number(v.String())
	}
	return v, nil
}

// number decodes what has the form of a JSON number.
func number(s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%s is too large a number", shorten(s))
	}
	return whole(f), nil
}

// jsonReader reads the usual JSON: strings without escapes, nothing nested very deep. Where it does not know what to do
// it gives up.
type jsonReader struct {
	text string
	at   int
	err  error // what encoding/json would not object to
}

func (r *jsonReader) blanks() {
	for r.at < len(r.text) && (r.text[r.at] == ' ' || r.text[r.at] == '\n' || r.text[r.at] == '\t' || r.text[r.at] == '\r') {
		r.at++
	}
}

// next passes over blanks and then c, if that stands there.
func (r *jsonReader) next(c byte) bool {
	r.blanks()
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *jsonReader) value(depth int) (any, bool) {
	if r.at >= len(r.text) || depth > maxDepth {
		return nil, false
	}
	switch c := r.text[r.at]; c {
	case '{':
		return r.mapping(depth)
	case '[':
		return r.list(depth)
	case '"':
		return r.string()
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	}
	return r.number()
}

func (r *jsonReader) word(w string) bool {
	if !strings.HasPrefix(r.text[r.at:], w) {
		return false
	}
	r.at += len(w)
	return true
}

func (r *jsonReader) mapping(depth int) (any, bool) {
	r.at++
	m := map[string]any{}
	if r.next('}') {
		return m, true
	}
	for {
		r.blanks()
		key, ok := r.string()
		if !ok || !r.next(':') {
			return nil, false
		}
		r.blanks()
		v, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		before := len(m)
		if m[key] = v; len(m) == before {
			r.err = fmt.Errorf("field %q stands twice", key)
			return nil, false
		}
		if r.next(',') {
			continue
		}
		return m, r.next('}')
	}
}

func (r *jsonReader) list(depth int) (any, bool) {
	r.at++
	list := []any{}
	if r.next(']') {
		return list, true
	}
	for {
		r.blanks()
		v, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		list = append(list, v)
		if r.next(',') {
			continue
		}
		return list, r.next(']')
	}
}

func (r *jsonReader) string() (string, bool) {
	if r.at >= len(r.text) || r.text[r.at] != '"' {
		return "", false
	}
	start := r.at + 1
	ascii := true
	for i := start; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			s := r.text[start:i]
			r.at = i + 1
			return s, ascii || utf8.ValidString(s)
		case c == '\\':
			return r.escaped(i)
		case c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", false
}

// escaped reads a string with a backslash at i.
func (r *jsonReader) escaped(i int) (string, bool) {
	for ; i < len(r.text) && r.text[i] != '"'; i++ {
		if r.text[i] == '\\' {
			i++
		}
	}
	if i >= len(r.text) {
		return "", false
	}
	var s string
	if json.Unmarshal([]byte(r.text[r.at:i+1]), &s) != nil {
		return "", false
	}
	r.at = i + 1
	return s, true
}

func (r *jsonReader) number() (any, bool) {
	start := r.at
	r.sign("-")
	digits := r.at
	if !r.digits() || r.text[digits] == '0' && r.at > digits+1 {
		return nil, false
	}
	if r.at < len(r.text) && r.text[r.at] == '.' {
		if r.at++; !r.digits() {
			return nil, false
		}
	}
	if r.at < len(r.text) && r.text[r.at]|0x20 == 'e' {
		r.at++
		if r.sign("+-"); !r.digits() {
			return nil, false
		}
	}
	v, err := number(r.text[start:r.at])
	r.err = err
	return v, err == nil
}

func (r *jsonReader) sign(signs string) {
	if r.at < len(r.text) && strings.IndexByte(signs, r.text[r.at]) >= 0 {
		r.at++
	}
}

// digits passes over digits and reports whether there are any.
func (r *jsonReader) digits() bool {
	start := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > start
}
