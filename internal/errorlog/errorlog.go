// Package errorlog finds the errors in the logs of controllers, whatever library writes them, and brings them into a
// form in which the same error looks the same each time.
package errorlog

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
)

// MaxLine is the length to which Lines truncates lines, in bytes.
const MaxLine = 4 << 10

var (
	// Error levels of klog, zap (JSON, console), logr and slog.
	errorLevel = regexp.MustCompile(
		`^[EF]\d{4} |"level":"(?:error|dpanic|panic|fatal|ERROR)"|\blevel=(?:error|ERROR|fatal)\b|` +
			`\t(?:ERROR|DPANIC|PANIC|FATAL)\t|` +
			`^(?:\S+ )*(?:ERROR|FATAL)\b`)
	// Words in errors of programs that log in their own format.
	errorWords = regexp.MustCompile(`(?i)\b(?:error|errors|failed|fails|cannot|forbidden|denied|refused|invalid)\b`)
)

// Marked reports whether a line has an error level.
func Marked(line string) bool { return errorLevel.MatchString(line) }

// Sounds reports whether a line contains a word that errors contain.
func Sounds(line string) bool { return errorWords.MatchString(line) }

// maxShape is the maximum length of a shape, in bytes.
const maxShape = 300

var (
	klogHead = regexp.MustCompile(`^[EFIW]\d{4} \S+\s+\d+ ([^\]]*)\] `)
	// A value in logr's text form: key="quoted" or key=value.
	pair = regexp.MustCompile(`(\s|^)([A-Za-z_][\w./-]*)=("(?:[^"\\]|\\.)*"|\{[^{}]*\}|\S*)`)
	// Two lines about the same error differ in these parts, which are replaced in this order.
	variables = []struct {
		pattern *regexp.Regexp
		by      string
	}{
		{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*`), "<time>"},
		{regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`), "<id>"},
		{regexp.MustCompile(`"(?:[^"\\]|\\.)*"`), `"…"`},
		{regexp.MustCompile(`'[^']*'`), `'…'`},
		{regexp.MustCompile(`\b\w+://\S+`), "<url>"},
		{regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?`), "<address>"},
		{regexp.MustCompile(`\b[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*\b`), "<name>"},
		// The random end of a generated name.
		{regexp.MustCompile(`\b[a-z][a-z0-9]*(?:-[a-z0-9]+)*-[bcdfghjklmnpqrstvwxz2456789]{5}\b`), "<name>"},
		{regexp.MustCompile(`\b(?:0x)?[0-9a-f]*\d[0-9a-f]{7,}\b`), "<id>"},
		{regexp.MustCompile(`\d+(?:\.\d+)?`), "#"},
	}
)

// Shape is what two lines about the same error have in common: the message and the error, with placeholders for times,
// numbers, IDs, quoted text, names and addresses.
func Shape(line string) string {
	text := Message(line)
	for _, v := range variables {
		text = v.pattern.ReplaceAllString(text, v.by)
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxShape {
		text = strings.ToValidUTF8(text[:maxShape], "") + "…"
	}
	return text
}

// Message is the message of a line and its error, without the other values that a structured line has.
func Message(line string) string {
	var fields map[string]any
	trimmed := strings.TrimSpace(line)
	if strings.HasPrefix(trimmed, "{") && json.Unmarshal([]byte(trimmed), &fields) == nil {
		return ofFields(first(fields, "msg", "message", "M"), fields)
	}
	// zap's console form: time, level, perhaps a logger, message, values.
	if columns := strings.Split(line, "\t"); len(columns) > 2 && errorLevel.MatchString(line) {
		columns = columns[2:]
		last := columns[len(columns)-1]
		if strings.HasPrefix(last, "{") && json.Unmarshal([]byte(last), &fields) == nil {
			return ofFields(strings.Join(columns[:len(columns)-1], " "), fields)
		}
		return strings.Join(columns, " ")
	}
	head := ""
	if m := klogHead.FindStringSubmatch(line); m != nil {
		file, _, _ := strings.Cut(m[1], ":")
		head, line = file+": ", line[len(m[0]):]
		// A structured message of klog is quoted.
		if strings.HasPrefix(line, `"`) {
			if end := strings.Index(line[1:], `"`); end > 0 {
				line = line[1:1+end] + line[2+end:]
			}
		}
	}
	return head + pair.ReplaceAllStringFunc(line, func(found string) string {
		m := pair.FindStringSubmatch(found)
		switch m[2] {
		case "err", "error", "msg":
			return " " + unquote(m[3])
		}
		return ""
	})
}

func ofFields(text string, fields map[string]any) string {
	if err := first(fields, "error", "err"); err != "" {
		text += ": " + err
	}
	return text
}

func first(fields map[string]any, names ...string) string {
	for _, name := range names {
		if s, ok := fields[name].(string); ok {
			return s
		}
	}
	return ""
}

func unquote(text string) string {
	var s string
	if json.Unmarshal([]byte(text), &s) == nil {
		return s
	}
	return text
}

// File calls f for every line of a part of a file. Lines longer than MaxLine are truncated. The part begins at an
// offset in bytes, and ends before another one; a negative end is the file's end.
func File(file string, start, end int64, f func(line string)) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if _, err := in.Seek(start, io.SeekStart); err != nil {
		return err
	}
	var from io.Reader = in
	if end >= 0 {
		from = io.LimitReader(in, end-start)
	}
	return Lines(from, f)
}

// Lines calls f for every line. Lines longer than MaxLine are truncated.
func Lines(from io.Reader, f func(line string)) error {
	in := bufio.NewReaderSize(from, MaxLine)
	for {
		line, err := in.ReadSlice('\n')
		text := strings.TrimRight(string(line), "\r\n")
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err == nil || text != "" {
			f(text)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
