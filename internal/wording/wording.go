// Package wording has what messages to people need: the word that a user meant, and short texts.
package wording

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// FirstLine returns a text up to its first line break.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// Times says how often something happened.
func Times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Count says how many there are of something: "1 plan", "2 plans". The plural ends with s.
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// First lists the first of several names, and says how many more there are.
func First(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(slices.Clone(names[:most]), ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}

// Gigabytes says a number of bytes.
func Gigabytes(bytes int64) string { return fmt.Sprintf("%.2f GB", float64(bytes)/1e9) }

// Ordinal writes a number as 1st, 2nd and so on.
func Ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// Ago formats an age, rounded.
func Ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}
