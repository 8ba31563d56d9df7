package errorlog

import (
	"regexp"
	"strconv"
	"time"
)

var (
	klogTime  = regexp.MustCompile(`^[EFIW](\d{4} \d\d:\d\d:\d\d\.\d+)`)
	isoTime   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)`)
	epochTime = regexp.MustCompile(`"(?:ts|time)":\s*(\d(?:\.\d+)?[eE]\+?0?9|\d{9,11}(?:\.\d+)?)\b`)
)

// Time returns the time that a line was logged at, if the line contains it in a known form. Near is a time at most half
// a year from it, as some forms lack the year.
func Time(line string, near time.Time) (at time.Time, known bool) {
	if m := klogTime.FindStringSubmatch(line); m != nil {
		at, err := time.ParseInLocation("0102 15:04:05.999999", m[1], near.Location())
		if err != nil {
			return time.Time{}, false
		}
		at = at.AddDate(near.Year(), 0, 0)
		for at.Sub(near) > 183*24*time.Hour {
			at = at.AddDate(-1, 0, 0)
		}
		for near.Sub(at) > 183*24*time.Hour {
			at = at.AddDate(1, 0, 0)
		}
		return at, true
	}
	if m := isoTime.FindString(line); m != "" {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700"} {
			if at, err := time.Parse(layout, m); err == nil {
				return at, true
			}
		}
	}
	if m := epochTime.FindStringSubmatch(line); m != nil {
		if s, err := strconv.ParseFloat(m[1], 64); err == nil {
			return time.UnixMicro(int64(s * 1e6)), true
		}
	}
	return time.Time{}, false
}
