package wording

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Shorten cuts a long text.
func Shorten(s string) string {
	if len(s) <= 60 {
		return s
	}
	cut := 57
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Suggest completes a message about an unknown word with the most similar known word, or else with all of them.
func Suggest(word string, known []string) string {
	if best := Closest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	if len(known) == 0 || len(known) > 16 {
		return ""
	}
	return fmt.Sprintf(" (known: %s)", strings.Join(known, ", "))
}

// Closest returns the known word within a few edits of word, or "".
func Closest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	lower := strings.ToLower(word)
	limit := 1 + len(word)/4
	best := ""
	for _, k := range known {
		d := Distance(lower, strings.ToLower(k))
		// A prefix or suffix of a known word counts as similar too: onObjectCreate, controllerWrite.
		if d > limit && len(word) >= 4 && (strings.HasPrefix(strings.ToLower(k), lower) ||
			strings.HasSuffix(strings.ToLower(k), lower)) {
			d = limit
		}
		if d <= limit && (best == "" || d < Distance(lower, strings.ToLower(best))) {
			best = k
		}
	}
	return best
}

// Distance is the number of letters to insert, delete, replace or swap between a and b.
func Distance(a, b string) int {
	if diff := len(a) - len(b); diff > 16 || diff < -16 {
		return 99
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
