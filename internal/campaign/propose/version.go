package propose

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// isVersion reports whether a field names a version of what the controller runs, by its name. The apiVersion of an
// embedded object is none.
func isVersion(name string) bool {
	lower := strings.ToLower(name)
	return lower == "tag" || strings.HasSuffix(name, "Tag") || lower == "version" ||
		strings.HasSuffix(name, "Version") && lower != "apiversion" && lower != "resourceversion"
}

// isImage reports whether a field names a container image.
func isImage(name string) bool { return name == "image" || strings.HasSuffix(name, "Image") }

// number is a version, taken apart: a prefix such as v, the numbers, and what follows them, such as -alpine.
type number struct {
	prefix string
	parts  []int
	suffix string
}

var numbers = regexp.MustCompile(`^([A-Za-z]*-?)([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})([-+._A-Za-z].*)?$`)

func parseVersion(text string) (v number, ok bool) {
	m := numbers.FindStringSubmatch(text)
	if m == nil {
		return v, false
	}
	v = number{prefix: m[1], suffix: m[3]}
	for _, part := range strings.Split(m[2], ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return v, false
		}
		v.parts = append(v.parts, n)
	}
	return v, true
}

func (v number) String() string {
	var parts []string
	for _, n := range v.parts {
		parts = append(parts, strconv.Itoa(n))
	}
	return v.prefix + strings.Join(parts, ".") + v.suffix
}

// next is the version after this one: of a patch (1.2.3), or else of a minor version (1.2). A major version has none:
// only its maker knows whether there is another one.
func (v number) next() (number, bool) {
	if len(v.parts) < 2 {
		return v, false
	}
	v.parts = slices.Clone(v.parts)
	v.parts[len(v.parts)-1]++
	return v, true
}

// alike reports whether two versions are written in the same form.
func (v number) alike(o number) bool { return v.prefix == o.prefix && len(v.parts) == len(o.parts) }

// otherVersions orders values that may replace a version: the next higher one first, then the next lower ones, then
// values that are not versions. Values that do not match the schema's pattern, and the version itself, are left out.
func otherVersions(s *apiextensions.JSONSchemaProps, now string, values []string) []string {
	pattern, err := regexp.Compile(s.Pattern)
	if err != nil {
		pattern = regexp.MustCompile("") // a pattern of another dialect: the API server will tell
	}
	current, known := parseVersion(now)
	order := func(text string) (class int, v number) {
		v, ok := parseVersion(text)
		switch {
		case !ok || !known:
			return 2, v
		case slices.Compare(v.parts, current.parts) >= 0:
			return 0, v
		}
		return 1, v
	}
	var others []string
	for _, text := range values {
		if text != "" && text != now && pattern.MatchString(text) && !slices.Contains(others, text) {
			others = append(others, text)
		}
	}
	slices.SortStableFunc(others, func(a, b string) int {
		classA, versionA := order(a)
		classB, versionB := order(b)
		switch {
		case classA != classB:
			return classA - classB
		case classA == 0:
			return slices.Compare(versionA.parts, versionB.parts)
		case classA == 1:
			return slices.Compare(versionB.parts, versionA.parts)
		}
		return 0
	})
	return others
}

// versionChange is the change of a version to another one: an upgrade if there is one.
func versionChange(now, to string) Change {
	from, ok := parseVersion(now)
	other, ok2 := parseVersion(to)
	switch c := slices.Compare(from.parts, other.parts); {
	case !ok || !ok2 || c == 0:
		return Change{Label: toLabel(to), To: to}
	case c < 0:
		return Change{Label: "upgrade", To: to}
	}
	return Change{Label: "downgrade", To: to}
}

// saysVersions is a sentence of a description that names versions which there are.
var saysVersions = regexp.MustCompile(`(?i)(support|one of|version|e\.g|example|such as|allowed|default)`)

// described are the versions that a description names, in the form of the version that the sample has.
func described(description string, now string) (values []string) {
	current, ok := parseVersion(now)
	if !ok || !saysVersions.MatchString(description) {
		return nil
	}
	for _, text := range strings.FieldsFunc(description, func(r rune) bool {
		return strings.ContainsRune(" \n\t,;:()[]{}\"'`|/", r)
	}) {
		v, ok := parseVersion(strings.TrimRight(text, "."))
		// A number alone may be anything: it must be near.
		if ok && v.alike(current) && v.suffix == current.suffix &&
			(len(v.parts) > 1 || v.parts[0]-current.parts[0] < 10 && current.parts[0]-v.parts[0] < 10) {
			values = append(values, v.String())
		}
	}
	return values
}

// texts are the example and the default of a schema, and what other samples have.
func (w *walker) texts(s *apiextensions.JSONSchemaProps, p place) (values []string) {
	for _, raw := range []*apiextensions.JSON{s.Example, s.Default} {
		if raw == nil {
			continue
		}
		if value, err := decode(*raw); err == nil {
			if text, ok := value.(string); ok {
				values = append(values, text)
			}
		}
	}
	for _, other := range w.others {
		if text, ok := lookup(other, p.path).(string); ok {
			values = append(values, text)
		}
	}
	return values
}

// version changes a version to another one that there is.
func (w *walker) version(s *apiextensions.JSONSchemaProps, p place) {
	now, _ := p.value.(string)
	known := otherVersions(s, now, append(w.texts(s, p), described(s.Description, now)...))
	if len(known) == 0 {
		if v, ok := parseVersion(now); ok {
			if next, ok := v.next(); ok {
				known = otherVersions(s, now, []string{next.String()})
			}
		}
	}
	switch {
	case len(known) > 0:
		w.add(p, rankImage, versionChange(now, known[0]))
	case now == "":
		w.drop(p, "a version that is not set in the sample: neither the schema nor another sample has one")
	default:
		w.drop(p, "a version of which no other one is known: neither the schema nor another sample has one, and %q "+
			"has no minor version that could be the next one", now)
	}
}

// image changes the tag of an image: to that of another sample, or to the next one. It reports whether it could.
func (w *walker) image(s *apiextensions.JSONSchemaProps, p place, now string) bool {
	name, tag := splitImage(now)
	var tags, images []string
	for _, other := range w.texts(s, p) {
		switch n, t := splitImage(other); {
		case other == now || strings.Contains(other, "@"):
		case n == name && t != "" && now != "":
			tags = append(tags, t)
		case now == "":
			images = append(images, other)
		}
	}
	// Of a version, another version is taken: latest is none.
	if _, ok := parseVersion(tag); ok {
		tags = slices.DeleteFunc(tags, func(t string) bool { _, ok := parseVersion(t); return !ok })
	}
	if known := otherVersions(&apiextensions.JSONSchemaProps{}, tag, tags); len(known) > 0 {
		c := versionChange(tag, known[0])
		c.To = name + ":" + known[0]
		w.add(p, rankImage, c)
		return true
	}
	if to, ok := otherTag(now); ok {
		w.add(p, rankImage, Change{Label: "other-tag", To: to})
		return true
	}
	if len(images) > 0 {
		w.add(p, rankImage, Change{Label: "set", To: images[0]})
		return true
	}
	return false
}

// splitImage takes an image's name and its tag apart.
func splitImage(image string) (name, tag string) {
	at := strings.LastIndex(image, ":")
	if at < strings.LastIndex(image, "/") || at < 0 { // the port of a registry
		return image, ""
	}
	return image[:at], image[at+1:]
}

// lastNumber is the last number of a tag.
var lastNumber = regexp.MustCompile(`^(.*?)([0-9]{1,9})([^0-9]*)$`)

// otherTag returns an image with another tag. An image that is named by a digest has none.
func otherTag(image string) (string, bool) {
	if image == "" || strings.ContainsAny(image, "@ ") {
		return "", false
	}
	name, tag := splitImage(image)
	if tag == "" {
		return image + ":2", true
	}
	if v, ok := parseVersion(tag); ok {
		if next, ok := v.next(); ok {
			return name + ":" + next.String(), true // of 1.27-alpine3.18 the first number is the version
		}
	}
	m := lastNumber.FindStringSubmatch(tag)
	if m == nil {
		return image + "-2", true
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return "", false
	}
	return name + ":" + m[1] + strconv.Itoa(n+1) + m[3], true
}
