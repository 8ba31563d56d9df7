package processlog

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// A stack has two lines for each call, as Go prints it: the function with its arguments, and its place.
var (
	stackPlace = regexp.MustCompile(`^\s+(\S+\.go):(\d+)(?: \+0x[0-9a-f]+)?$`)
)

// callersIn are the places in a stack that are in the source of a module, the innermost first. Their files begin with
// the module's path, as programs have them that are built with -trimpath; other modules' have a version there.
func callersIn(module string, stack []string) (c record.Callers) {
	if module == "" {
		return c
	}
	n := 0
	for i := 1; i < len(stack) && n < len(c); i++ {
		at := stackPlace.FindStringSubmatch(stack[i])
		if at == nil {
			continue
		}
		file, ours := strings.CutPrefix(at[1], module+"/")
		function := functionOf(stack[i-1])
		line, err := strconv.Atoi(at[2])
		if !ours || function == "" || err != nil || strings.Contains(file, "zz_generated") {
			continue
		}
		c[n] = record.Frame{Function: function, File: file, Line: line}
		n++
	}
	return c
}

// functionOf is the function in the first line of a call, without its arguments; empty: it is another line.
func functionOf(line string) string {
	line = strings.TrimSpace(line)
	open := strings.LastIndexByte(line, '(')
	if open <= 0 || !strings.HasSuffix(line, ")") {
		return ""
	}
	return line[:open]
}
