// Package wording has what messages to people need: the word that somebody meant, and short texts.
package wording

import (
	"fmt"
	"strings"
)

// FirstLine returns a text up to its first line break.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// Count says how many there are of something: "1 plan", "2 plans". The plural ends with s.
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
