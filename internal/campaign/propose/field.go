package propose

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Field is a field of an object that can be changed.
type Field struct {
	Path    []string // from the object's root; a number is an item of a list
	Changes []Change // the most different one first
	rank    int      // the lower, the more a change is likely to make the controller do
}

// Change is a change of one field.
type Change struct {
	Path     []string
	Label    string // for names: "up", "to-zero", the enum's value
	From, To any    // nil: absent
	OneWay   bool   // changing it back is not allowed, or means nothing
}

// String says what changes, for people.
func (c Change) String() string {
	field := strings.Join(c.Path, ".")
	switch {
	case c.From == nil:
		return fmt.Sprintf("%s is set to %s", field, show(c.To))
	case c.To == nil:
		return fmt.Sprintf("%s is removed", field)
	}
	return fmt.Sprintf("%s from %s to %s", field, show(c.From), show(c.To))
}

// Back says what undoes the change, for people.
func (c Change) Back() string {
	field := strings.Join(c.Path, ".")
	if c.From == nil {
		return field + " is removed again"
	}
	return fmt.Sprintf("%s back to %s", field, show(c.From))
}

// Dropped is a field or a change for which there is no workload.
type Dropped struct {
	Field  string // the path, with dots
	Reason string
}

// show writes a value in one line.
func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const most = 60
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}

// Ranks of fields.
const (
	rankReplicas = iota
	rankQuantity
	rankImage
	rankEnum
	rankBoolean
	rankTemplate
	rankInteger
	rankBlock
)

// Limits of the walk.
const (
	maxDepth    = 12 // of fields below the spec
	absentDepth = 2  // fields that are not set are tried down to here: deeper ones are other objects' fields
	maxValues   = 3  // of an enum
	maxKeys     = 2  // of a mapping of objects
)

// Fields lists the fields of a custom resource's spec that can be changed, and those that cannot, by the schema of its
// version. The object is a sample as the API server returns it, with defaults; others are further samples of its kind,
// which show other values.
func Fields(schema *apiextensions.JSONSchemaProps, object map[string]any, others ...map[string]any) ([]Field,
	[]Dropped) {
	spec, ok := schema.Properties["spec"]
	if !ok {
		return nil, []Dropped{{"spec", "the schema has no spec"}}
	}
	w := &walker{sample: object, others: others}
	value, present := jsonNumbers(object["spec"]), object["spec"] != nil
	w.walk(&spec, place{path: []string{"spec"}, value: value, present: present, required: true})
	slices.SortStableFunc(w.fields, func(a, b Field) int { return a.rank - b.rank })
	return w.fields, w.dropped
}

// jsonNumbers turns integers into floating-point numbers, which JSON has only.
func jsonNumbers(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case map[string]any:
		m := map[string]any{}
		for k, item := range v {
			m[k] = jsonNumbers(item)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = jsonNumbers(item)
		}
		return list
	}
	return v
}

type walker struct {
	sample  map[string]any
	others  []map[string]any
	fields  []Field
	dropped []Dropped
}

// place is where the walk is.
type place struct {
	path     []string
	value    any
	present  bool
	required bool // by the schema of the parent
}

func (p place) name() string { return p.path[len(p.path)-1] }

func (p place) below(step string, value any, present, required bool) place {
	return place{append(slices.Clip(p.path), step), value, present, required}
}

func (w *walker) drop(p place, format string, args ...any) {
	w.dropped = append(w.dropped, Dropped{strings.Join(p.path, "."), fmt.Sprintf(format, args...)})
}

// add adds a field with its changes, given as label and new value.
func (w *walker) add(p place, rank int, changes ...Change) {
	for i := range changes {
		changes[i].Path = p.path
		if p.present {
			changes[i].From = plain(p.value)
		}
		changes[i].To = plain(changes[i].To)
	}
	changes = slices.DeleteFunc(changes, func(c Change) bool { return reflect.DeepEqual(c.From, c.To) })
	if len(changes) > 0 {
		w.fields = append(w.fields, Field{p.path, changes, rank})
	}
}

// plain turns whole floating-point numbers, as JSON has them, into integers.
func plain(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case map[string]any:
		m := map[string]any{}
		for k, item := range v {
			m[k] = plain(item)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = plain(item)
		}
		return list
	}
	return v
}

// immutable says why the schema does not let a value change; empty: it does.
func immutable(s *apiextensions.JSONSchemaProps) string {
	for _, v := range s.XValidations {
		rule := strings.ReplaceAll(v.Rule, " ", "")
		if rule == "self==oldSelf" || rule == "oldSelf==self" {
			return fmt.Sprintf("immutable: its rule is %q", v.Rule)
		}
	}
	return ""
}

func (w *walker) walk(s *apiextensions.JSONSchemaProps, p place) {
	if reason := immutable(s); reason != "" {
		w.drop(p, "%s", reason)
		return
	}
	if len(p.path) > maxDepth {
		w.drop(p, "too deep")
		return
	}
	if !p.present && s.Default == nil && len(p.path)-1 > absentDepth {
		w.drop(p, "not set in the sample")
		return
	}
	switch {
	case len(s.Enum) > 0:
		w.enum(s, p)
	case s.XIntOrString || isQuantity(s, p):
		w.quantity(s, p)
	case s.Type == "integer" || s.Type == "number":
		w.number(s, p)
	case s.Type == "boolean":
		now, _ := p.value.(bool)
		to := Change{Label: "on", To: true}
		if now {
			to = Change{Label: "off", To: false}
		}
		w.add(p, rankBoolean, to)
	case s.Type == "string":
		w.text(s, p)
	case s.Type == "array":
		w.list(s, p)
	case isTemplate(s):
		w.template(s, p)
	case s.Type == "object":
		w.object(s, p)
	default:
		w.drop(p, "the schema does not say what it is")
	}
}

func (w *walker) enum(s *apiextensions.JSONSchemaProps, p place) {
	var changes []Change
	for _, raw := range s.Enum {
		value, err := decode(raw)
		if err != nil || value == "" || value == nil || reflect.DeepEqual(value, p.value) {
			continue
		}
		changes = append(changes, Change{Label: toLabel(fmt.Sprint(value)), To: value})
	}
	if len(changes) == 0 {
		w.drop(p, "the enum has no other value")
		return
	}
	if now, _ := p.value.(string); isVersion(p.name()) {
		var all []string
		for _, c := range changes {
			if text, ok := c.To.(string); ok {
				all = append(all, text)
			}
		}
		if all = otherVersions(s, now, all); len(all) > 0 {
			w.add(p, rankImage, versionChange(now, all[0]))
			return
		}
	}
	w.add(p, rankEnum, changes[:min(len(changes), maxValues)]...)
}

func decode(raw apiextensions.JSON) (value any, err error) {
	err = json.Unmarshal(raw.Raw, &value)
	return value, err
}

// isCount reports whether a field counts what the controller makes, by its name.
func isCount(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasSuffix(lower, "replicas") || strings.HasSuffix(lower, "parallelism") ||
		slices.Contains([]string{"size", "instances", "members", "count", "nodes", "workers", "shards", "slices"},
			lower)
}

func (w *walker) number(s *apiextensions.JSONSchemaProps, p place) {
	allowed := func(n float64) bool {
		return (s.Minimum == nil || n > *s.Minimum || n == *s.Minimum && !s.ExclusiveMinimum) &&
			(s.Maximum == nil || n < *s.Maximum || n == *s.Maximum && !s.ExclusiveMaximum)
	}
	step := 1.0
	if s.MultipleOf != nil && *s.MultipleOf > 0 {
		step = *s.MultipleOf
	}
	count := isCount(p.name())
	now, known := p.value.(float64)
	var changes []Change
	try := func(label string, n float64, oneWay bool) {
		if allowed(n) && !slices.ContainsFunc(changes, func(c Change) bool { return c.To == n }) {
			changes = append(changes, Change{Label: label, To: n, OneWay: oneWay})
		}
	}
	switch {
	case !known && p.present:
		w.drop(p, "%s is not a number", show(p.value))
		return
	case !known:
		// The smallest value that is not the one of a controller that ignores the field.
		n := step
		if s.Minimum != nil && *s.Minimum > n {
			n = math.Ceil(*s.Minimum/step) * step
		}
		try("set", n, false)
	case count:
		try("up", now+step, false)
		if now > step {
			try("down", now-step, false)
		}
		if now > 0 {
			try("to-zero", 0, false)
		}
	default:
		try("up", now+step, false)
		if len(changes) == 0 {
			try("down", now-step, false)
		}
	}
	if len(changes) == 0 {
		w.drop(p, "the minimum and the maximum allow no other value")
		return
	}
	rank := rankInteger
	if count {
		rank = rankReplicas
	}
	w.add(p, rank, changes...)
}

func (w *walker) text(s *apiextensions.JSONSchemaProps, p place) {
	now, _ := p.value.(string)
	if isImage(p.name()) && w.image(s, p, now) {
		return
	}
	if isVersion(p.name()) {
		w.version(s, p)
		return
	}
	for _, raw := range []*apiextensions.JSON{s.Example, s.Default} {
		if raw == nil {
			continue
		}
		value, err := decode(*raw)
		if to, ok := value.(string); err == nil && ok && to != "" && to != now {
			w.add(p, rankEnum, Change{Label: toLabel(to), To: to})
			return
		}
	}
	w.drop(p, "a text of unknown meaning: the schema has neither an enum nor an example")
}

func (w *walker) list(s *apiextensions.JSONSchemaProps, p place) {
	items, _ := p.value.([]any)
	switch {
	case s.Items == nil || s.Items.Schema == nil:
		w.drop(p, "the schema does not say what its items are")
	case len(items) == 0:
		w.drop(p, "the sample has no item of it")
	case s.Items.Schema.Type != "object":
		w.drop(p, "items of a list are changed only if they are objects")
	default:
		w.walk(s.Items.Schema, p.below("0", items[0], true, true))
	}
}

func (w *walker) object(s *apiextensions.JSONSchemaProps, p place) {
	fields, _ := p.value.(map[string]any)
	switch p.name() {
	case "labels", "annotations":
		w.mark(p, fields)
		return
	case "status":
		return // of an embedded object
	}
	if !p.present {
		w.block(s, p)
		return
	}
	if s.AdditionalProperties != nil && len(s.Properties) == 0 {
		w.mapping(s, p, fields)
		return
	}
	if len(s.Properties) == 0 {
		w.drop(p, "the schema does not say which fields it has")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		if property.Type == "object" && name == "metadata" {
			w.metadata(&property, p)
			continue
		}
		value, present := fields[name]
		w.walk(&property, p.below(name, value, present, slices.Contains(s.Required, name)))
	}
	// Required fields are not taken away: the sample would be another one.
	if !p.required && len(p.path) > 1 && len(p.path)-1 <= absentDepth && s.Default == nil {
		w.add(p, rankBlock, Change{Label: "removed", To: nil})
	}
}

// mapping walks a mapping whose keys the user chooses.
func (w *walker) mapping(s *apiextensions.JSONSchemaProps, p place, fields map[string]any) {
	values := s.AdditionalProperties.Schema
	switch {
	case values != nil && values.Type == "string" && w.amounts(values, p, fields):
	case values == nil || values.Type == "string":
		w.drop(p, "a mapping of texts of unknown meaning")
	case len(fields) == 0:
		w.drop(p, "the sample has no item of it")
	default:
		for i, key := range slices.Sorted(maps.Keys(fields)) {
			if i < maxKeys {
				w.walk(values, p.below(key, fields[key], true, true))
			}
		}
	}
}

// block tries to set an optional object that the sample does not have.
func (w *walker) block(s *apiextensions.JSONSchemaProps, p place) {
	if isResources(s) {
		requests := map[string]any{"cpu": leastAmounts["cpu"], "memory": leastAmounts["memory"]}
		if isStorage(p.path) {
			requests = map[string]any{"storage": "1Gi"}
		}
		w.add(p, rankQuantity, Change{Label: "set", To: map[string]any{"requests": requests}})
		return
	}
	value, reason := smallest(s, 0)
	if reason != "" {
		w.drop(p, "not set in the sample, and cannot be made from the schema: %s", reason)
		return
	}
	w.add(p, rankBlock, Change{Label: "set", To: value})
}

// smallest makes a value with what the schema requires, or says why it cannot.
func smallest(s *apiextensions.JSONSchemaProps, depth int) (value any, reason string) {
	for _, raw := range []*apiextensions.JSON{s.Default, s.Example} {
		if raw != nil {
			if value, err := decode(*raw); err == nil && value != nil {
				return value, ""
			}
		}
	}
	for _, raw := range s.Enum {
		if value, err := decode(raw); err == nil && value != "" && value != nil {
			return value, ""
		}
	}
	switch {
	case depth > maxDepth:
		return nil, "too deep"
	case s.Type == "boolean":
		return true, ""
	case s.Type == "integer" || s.Type == "number":
		if s.Minimum != nil && *s.Minimum > 1 {
			return math.Ceil(*s.Minimum), ""
		}
		return 1.0, ""
	case s.Type == "object":
		object := map[string]any{}
		for _, name := range s.Required {
			property, ok := s.Properties[name]
			if !ok {
				return nil, name + " is required and not described"
			}
			if object[name], reason = smallest(&property, depth+1); reason != "" {
				return nil, name + ": " + strings.TrimPrefix(reason, name+": ")
			}
		}
		if len(object) == 0 {
			// An empty block means nothing; one that holds a choice does.
			for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
				property := s.Properties[name]
				if property.Type != "boolean" && len(property.Enum) == 0 {
					continue
				}
				if v, reason := smallest(&property, depth+1); reason == "" {
					return map[string]any{name: v}, ""
				}
			}
		}
		return object, ""
	}
	return nil, "a text or list of unknown meaning is required"
}

// metadata changes the labels and annotations of an embedded object, where the schema keeps them.
func (w *walker) metadata(s *apiextensions.JSONSchemaProps, p place) {
	fields, _ := p.value.(map[string]any)
	value, present := fields["metadata"]
	at := p.below("metadata", value, present, false)
	keeps := s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields || s.XEmbeddedResource
	object, _ := value.(map[string]any)
	for _, name := range []string{"annotations", "labels"} {
		if _, ok := s.Properties[name]; !ok && !keeps {
			continue
		}
		marks, _ := object[name].(map[string]any)
		w.mark(at.below(name, object[name], marks != nil, false), marks)
	}
}

// markKey is the label or annotation that is added.
const markKey = "trommel.dev/changed"

// mark adds a label or an annotation.
func (w *walker) mark(p place, fields map[string]any) {
	value, present := fields[markKey]
	w.add(p.below(markKey, value, present, false), rankTemplate, Change{Label: "added", To: "yes"})
}

// isTemplate reports whether the schema is that of a pod template.
func isTemplate(s *apiextensions.JSONSchemaProps) bool {
	_, metadata := s.Properties["metadata"]
	return metadata && isPodSpec(s.Properties["spec"])
}

func isPodSpec(s apiextensions.JSONSchemaProps) bool {
	_, ok := s.Properties["containers"]
	return ok
}

// template changes what of a pod template means the same to every controller.
func (w *walker) template(s *apiextensions.JSONSchemaProps, p place) {
	fields, _ := p.value.(map[string]any)
	if !p.present {
		w.drop(p, "not set in the sample")
		return
	}
	metadata := s.Properties["metadata"]
	w.metadata(&metadata, p)
	spec, _ := fields["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		w.drop(p, "the pod template has no container")
		return
	}
	first, _ := containers[0].(map[string]any)
	image, _ := first["image"].(string)
	at := p.below("spec", spec, true, true).below("containers", containers, true, true).below("0", first, true, true).
		below("image", first["image"], true, true)
	if to, ok := otherTag(image); ok {
		w.add(at, rankImage, Change{Label: "other-tag", To: to})
	} else {
		w.drop(at, "%q has no tag that can be changed", image)
	}
	w.drop(p.below("spec", spec, true, true), "of a pod template only the first container's image is changed")
}

// word is a part of a name in camel case.
var word = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)

// kebab writes a name with lower case letters and hyphens.
func kebab(s string) string {
	var words []string
	for _, w := range word.FindAllString(s, -1) {
		words = append(words, strings.ToLower(w))
	}
	if len(words) == 0 {
		return "other"
	}
	return strings.Join(words, "-")
}

// Names of plans begin with that of their workload, and become names of directories.
const (
	maxFieldName = 32 // bytes of a field's name in that of a workload
	maxValueName = 24 // bytes of a value's
)

// toLabel is the label of a change to a value. Of an image or a URL it has only what comes last.
func toLabel(value string) string {
	return "to-" + shortened(kebab(value[strings.LastIndex(value, "/")+1:]), maxValueName)
}

// shortened cuts a name between its words.
func shortened(name string, most int) string {
	if len(name) <= most {
		return name
	}
	if i := strings.LastIndex(name[:most+1], "-"); i > 0 {
		return name[:i]
	}
	return name[:most]
}
