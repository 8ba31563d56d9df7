package scaffold

import "testing"

func TestPlaceholders(t *testing.T) {
	for value, want := range map[string]bool{
		`"AgBy3i4OJSWK+PiTySYZZA9rO43cGDEq..."`: true,
		`AgA+dujiBo…`:                           true,
		`<token>`:                               true,
		`https://<your-account>.example.com`:    true,
		`CHANGE_ME`:                             true,
		`your-bucket`:                           true,
		`arn:aws:iam::1234:role/YOUR_ROLE`:      true,
		`XXXXXXXX`:                              true,
		`TODO`:                                  true,
		`example.com`:                           false,
		`1.2.3`:                                 false,
		`3`:                                     false,
		`"a < b > c"`:                           false,
		`"{{ .Values.a }}"`:                     false,
		`xxl`:                                   false,
		`colour`:                                false,
		`{args: ["..."]}`:                       false,
		`{"script": "if [ a ]; then ... fi"}`:   false,
		`"a file\n# replace me ... in two lines\n"`: false,
	} {
		text := "{apiVersion: example.com/v1, kind: Shop, metadata: {name: a}, spec: {a: [" + value + "]}}"
		f := file{objects: decoded(t, text)}
		if got := placeholders(&f); got != want {
			t.Errorf("%s: %t, want %t", value, got, want)
		}
	}
}
