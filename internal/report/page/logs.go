package page

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/record"
)

// Of a log that is larger, a page shows its beginning and its end.
const (
	logHead = 128 << 10
	logTail = 384 << 10
)

// logContent is a log as the page's scripts get it.
type logContent struct {
	Times []float64 `json:"t"` // by line, in milliseconds; the line before's if it has none
	Lines []string  `json:"x"`
}

// logs reads the logs of the record: those of the controllers under test first. A log that cannot be read is left out:
// records are moved and trimmed.
func (b *pageBuilder) logs() {
	files, _ := filepath.Glob(filepath.Join(b.run.Dir, record.LogsDir, "*"))
	controllers := map[string]bool{}
	for _, p := range b.run.Processes {
		controllers[filepath.Base(p.LogFile)] = true
	}
	var rest []pageLog
	for _, file := range files {
		data, err := readLog(file)
		if err != nil || len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		name := filepath.Base(file)
		l := pageLog{Name: strings.TrimSuffix(name, ".log"), Controller: controllers[name], content: b.parseLog(data)}
		l.Lines = len(l.content.Lines)
		if l.Controller {
			b.data.Logs = append(b.data.Logs, l)
		} else {
			rest = append(rest, l)
		}
	}
	b.data.Logs = append(b.data.Logs, rest...)
}

func readLog(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	if info.Size() <= logHead+logTail {
		return io.ReadAll(f)
	}
	head := make([]byte, logHead)
	if _, err := io.ReadFull(f, head); err != nil {
		return nil, err
	}
	if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
		return nil, err
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	left := []byte("\n… " + strconv.FormatInt(info.Size()-logHead-logTail, 10) + " bytes are left out here …\n")
	return slices.Concat(head, left, tail), nil
}

// parseLog splits a log into lines and finds the time of each.
func (b *pageBuilder) parseLog(data []byte) logContent {
	var c logContent
	last := b.ms(b.run.Meta.Started)
	var shift time.Duration // of times without a zone
	shifted := false
	in := bufio.NewScanner(bytes.NewReader(data))
	in.Buffer(nil, len(data)+1)
	for in.Scan() {
		line := strings.ToValidUTF8(in.Text(), "\uFFFD")
		if at, local, ok := lineTime(line, report.Zero(b.run).UTC().Year()); ok {
			if local && !shifted {
				shift, shifted = report.Zero(b.run).Sub(at).Round(30*time.Minute), true
			}
			if local {
				at = at.Add(shift)
			}
			last = b.ms(at)
		}
		c.Lines = append(c.Lines, line)
		c.Times = append(c.Times, math.Round(last))
	}
	return c
}

var (
	klogTime  = regexp.MustCompile(`^[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6})`)
	stdTime   = regexp.MustCompile(`^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?)`)
	isoTime   = regexp.MustCompile(`^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)`)
	namedTime = regexp.MustCompile(`(?:"(?:ts|time|timestamp)":\s*"?|\btime="?)([0-9][0-9T:.+Z-]*)`)
)

// lineTime finds when a line was logged, in the formats of klog, zap, slog, logr and log; klog leaves out the year. A
// local time has no zone: it is that of the machine that logged.
func lineTime(line string, year int) (at time.Time, local, ok bool) {
	if m := klogTime.FindStringSubmatch(line); m != nil {
		t, err := time.Parse("20060102 15:04:05.000000", strconv.Itoa(year)+m[1])
		return t, true, err == nil
	}
	if m := stdTime.FindStringSubmatch(line); m != nil {
		t, err := time.Parse("2006/01/02 15:04:05", m[1])
		return t, true, err == nil
	}
	m := isoTime.FindStringSubmatch(line)
	if m == nil {
		m = namedTime.FindStringSubmatch(line)
	}
	if m == nil {
		return time.Time{}, false, false
	}
	text := strings.Replace(strings.Replace(m[1], " ", "T", 1), ",", ".", 1)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, false, true
		}
	}
	if t, err := time.Parse("2006-01-02T15:04:05", text); err == nil {
		return t, true, true
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 1e9 && seconds < 1e11 {
		return time.UnixMicro(int64(seconds * 1e6)), false, true
	}
	return time.Time{}, false, false
}
