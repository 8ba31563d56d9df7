package scaffold

import (
	"regexp"
	"slices"
	"strings"
)

// placeholder finds what a user must replace in a value: "AgBy8h...", <your-token>, CHANGE_ME, YOUR-BUCKET, xxxx,
// $BUCKET, ${BUCKET}.
var placeholder = regexp.MustCompile(
	`\.\.\.|…|^<[^<>]+>$|<(?i:your|my|insert|replace)[^<>]*>` +
		`|(?i:\b(?:change|replace|fill)[-_ ]?me\b)|(?i:\byour[-_][a-z])|\bTODO\b|\b[xX]{4,}\b` +
		`|\$\{?[A-Z][A-Z0-9_]+\b`)

// programs are fields whose texts are programs or commands, in which all of that may be meant.
var programs = []string{"args", "command", "script", "source", "annotations", "description"}

// placeholders reports whether a value in a file's objects is a placeholder, or has one in it.
func placeholders(f *file) bool {
	var in func(v any) bool
	in = func(v any) bool {
		switch v := v.(type) {
		case map[string]any:
			for k, value := range v {
				if !slices.Contains(programs, k) && in(value) {
					return true
				}
			}
		case []any:
			return slices.ContainsFunc(v, in)
		case string:
			return !strings.Contains(v, "\n") && placeholder.MatchString(v)
		}
		return false
	}
	for _, u := range f.objects {
		if in(u.Object) {
			return true
		}
	}
	return false
}
