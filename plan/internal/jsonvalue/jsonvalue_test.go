package jsonvalue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/wording"
)

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		text string
		want any
		err  string
	}{
		{text: ` {"a": {}, "b": [], "c": [1, -2.5, 1e3, 9007199254740993], "d": null, "e": [true, false]} `,
			want: map[string]any{
				"a": map[string]any{}, "b": []any{}, "c": []any{int64(1), -2.5, int64(1000), int64(9007199254740993)},
				"d": nil, "e": []any{true, false},
			}},
		{text: `"a\"\u00e9\\"`, want: "a\"é\\"},
		{text: `"é"`, want: "é"},
		{text: `1.0`, want: int64(1)},
		{text: `-0`, want: int64(0)},
		{text: `18446744073709551616`, want: 18446744073709551616.0},
		{text: strings.Repeat("[", 600) + strings.Repeat("]", 600)},
		{text: `1e999`, err: "number 1e999 is too large"},
		{text: `[{"a": 1, "b": {"c": 1, "\u0063": 2}}]`, err: `duplicate field "[0].b.c"`},
		{text: `{"a": 01}`, err: "invalid character '1' after object key:value pair"},
		{text: `{"a": }`, err: "invalid character '}' looking for beginning of value"},
		{text: `{"a"`, err: "unexpected end of JSON input"},
		{text: `{} {}`, err: "invalid character '{' after top-level value"},
		{text: ``, err: "unexpected end of JSON input"},
	} {
		got, err := Decode([]byte(test.text))
		if message := ""; err != nil {
			if message = err.Error(); message != test.err {
				t.Errorf("%s: error %q, want %q", wording.Shorten(test.text), message, test.err)
			}
			continue
		}
		if test.err != "" {
			t.Errorf("%s: no error, want %q", wording.Shorten(test.text), test.err)
		}
		if test.want != nil {
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: %s", wording.Shorten(test.text), diff)
			}
		}
	}
}
