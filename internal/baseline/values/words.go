package values

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Words splits a name such as lastErrorMessage.
func Words(name string) []string {
	var all []string
	word := ""
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r):
		case unicode.IsUpper(r) && word != "" && !unicode.IsUpper(rune(word[len(word)-1])):
			all, word = append(all, strings.ToLower(word)), string(r)
			continue
		default:
			word += string(r)
			continue
		}
		all, word = append(all, strings.ToLower(word)), ""
	}
	return append(all, strings.ToLower(word))
}

// IsDuration reports whether a value is a number, or a text such as 1m30s.
func IsDuration(v any) bool {
	switch v := v.(type) {
	case int64, float64:
		return true
	case string:
		_, err := time.ParseDuration(v)
		return err == nil
	}
	return false
}

// CountsMore reports whether both are numbers, and the second one is greater.
func CountsMore(want, got any) bool {
	number := func(v any) (int64, bool) {
		text, _ := v.(string)
		n, err := strconv.ParseInt(text, 10, 32)
		return n, err == nil
	}
	w, wanted := number(want)
	g, is := number(got)
	return wanted && is && g > w
}
