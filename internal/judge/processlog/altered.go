package processlog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// client-go's mutation detector prints the objects of a cache that were changed, beside how they were delivered, and
// panics then. See k8s.io/client-go/tools/cache/mutation_detector.go.
var (
	alteredBegins = regexp.MustCompile(`^CACHE (\S+)\[\d+\] ALTERED!$`)
	alteredPanic  = regexp.MustCompile(`^cache (\S+) modified$`)
	// typed is what the dump says about a value besides the value.
	typed = regexp.MustCompile(`\(len=\d+\) |\((?:map\[[^()]*|[]\w.*[]+)\) `)
	named = regexp.MustCompile(`^ {4}(Name|Namespace): .*"(.*)",$`)
	keyed = regexp.MustCompile(`"(name|namespace)": .*"(.*)",?$`) // of an unstructured object
)

// changesCache is in the title of a finding about a controller that changes objects in its cache.
const changesCache = "changes objects in its cache"

// mostAltered limits how many objects are shown, and how many lines of each.
const mostAltered = 10

// alteration is an object of a cache that was changed.
type alteration struct {
	typ             string
	width           int // of the left column, in which the object is as it was changed to; 0: no line came yet
	namespace, name string
	is, was         []string // its lines
}

// take takes a further line, and reports whether it is one of the object.
func (a *alteration) take(line string) bool {
	if line == "" {
		return false
	}
	if a.width == 0 {
		begin, _, _ := strings.Cut(line, " ")
		if a.width = strings.LastIndex(line, begin); a.width <= 0 {
			return false
		}
	}
	left, right := line, ""
	if len(line) > a.width {
		left, right = line[:a.width], line[a.width:]
	}
	left, right = strings.TrimRight(left, " "), strings.TrimRight(right, " ")
	for _, names := range []*regexp.Regexp{named, keyed} {
		if m := names.FindStringSubmatch(right); m != nil {
			switch strings.ToLower(m[1]) {
			case "name":
				a.name = cmp.Or(a.name, m[2])
			default:
				a.namespace = cmp.Or(a.namespace, m[2])
			}
		}
	}
	a.is, a.was = append(a.is, left), append(a.was, right)
	return true
}

// inWords are the values of a dump, each with what it is in.
func inWords(dump []string) (lines []string) {
	type parent struct {
		indent int
		name   string
	}
	var in []parent
	for _, line := range dump {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for len(in) > 0 && in[len(in)-1].indent >= indent {
			in = in[:len(in)-1]
		}
		text := strings.TrimSuffix(strings.TrimSpace(typed.ReplaceAllString(line, "")), ",")
		switch name, begins := strings.CutSuffix(text, "{"); {
		case begins:
			in = append(in, parent{indent, strings.TrimRight(name, " :(")})
		case strings.Trim(text, "{}()[]") != "" && len(in) > 0:
			lines = append(lines, in[len(in)-1].name+": "+text)
		}
	}
	return lines
}

// key names the object.
func (a *alteration) key() string {
	return strings.TrimPrefix(a.namespace+"/"+a.name, "/")
}

// lines say what is different.
func (a *alteration) lines() []string {
	all := []string{a.typ + " " + a.key()}
	is, was := inWords(a.is), inWords(a.was)
	add := func(word string, lines, others []string) {
		n := 0
		others = slices.Clone(others)
		for _, line := range lines {
			if i := slices.Index(others, line); i >= 0 {
				others = slices.Delete(others, i, i+1)
				continue
			}
			if n++; n <= mostAltered {
				all = append(all, "  "+word+" "+line)
			}
		}
		if n > mostAltered {
			all = append(all, fmt.Sprintf("  %s … (%d lines more)", word, n-mostAltered))
		}
	}
	add("delivered:", was, is)
	add("now:", is, was)
	return all
}

// ofCache says which objects in its cache a controller has changed.
func ofCache(controller string, all []alteration) (title, detail string) {
	var types, names, lines []string // of the types and objects that were changed, and the detail
	for i := range all {
		a := &all[i]
		if !slices.Contains(types, a.typ) {
			types = append(types, a.typ)
		}
		name := a.typ + " " + a.key()
		if slices.Contains(names, name) {
			continue
		}
		if names = append(names, name); len(names) <= mostAltered {
			lines = append(lines, a.lines()...)
		}
	}
	if more := len(names) - mostAltered; more > 0 {
		lines = append(lines, "and "+wording.Count(more, "object")+" more")
	}
	return fmt.Sprintf("controller %s %s: %s", controller, changesCache, strings.Join(types, ", ")),
		strings.Join(lines, "\n")
}

// Altered lists the objects of a finding about a controller that changes objects in its cache: each with its Go type,
// such as Node, and as namespace/name or name.
func Altered(f record.Finding) (types, names []string) {
	for line := range strings.Lines(f.Detail) {
		typ, name, both := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !both || typ == "" || !strings.Contains(typ, ".") || strings.Contains(name, " ") {
			continue // not the first line of an object
		}
		types, names = append(types, typ[strings.LastIndexByte(typ, '.')+1:]), append(names, name)
	}
	return types, names
}

// ChangesCache reports whether a finding says that a controller changes objects in its cache.
func ChangesCache(f record.Finding) bool {
	return f.Judge == record.JudgePanic && strings.Contains(f.Title, changesCache)
}
