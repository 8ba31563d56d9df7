package plan

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Manifest is where objects come from that are applied before controllers start. Exactly one of Path and Helm is set;
// paths are relative to the suite.
type Manifest struct {
	Path string // of a file, a folder of YAML, or a folder with a kustomization
	Helm string // of a chart: a folder or a .tgz

	// Namespace is given to namespaced objects that name none, as `kubectl apply -n` does; of a chart it is the
	// release's.
	Namespace string

	Release     string // of a chart; default: the chart's name
	Values      map[string]any
	ValuesFiles []string // later ones win over earlier ones, Values over all
}

// String is the manifest as a person would name it.
func (m Manifest) String() string {
	s := m.Path
	if m.Helm != "" {
		s = "chart " + m.Helm
	}
	if m.Namespace != "" {
		s += " in namespace " + m.Namespace
	}
	return s
}

var (
	manifestSchema = &schema{
		what:   "an item of manifests",
		fields: []string{"path", "helm", "namespace", "release", "values", "valuesFiles"},
		words:  map[string]string{"kustomize": "path", "chart": "helm"},
	}
	valueFromSchema = &schema{
		what:   "a variable of env",
		fields: []string{"valueFrom"},
		hints:  map[string]string{"value": "write the value itself, without a mapping"},
	}
	valueSources = []string{"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}
)

// manifest reads a path, or a mapping.
func (d *decoder) manifest(n *yaml.Node) Manifest {
	var m Manifest
	if deref(n).Kind == yaml.ScalarNode {
		m.Path = d.text(n, "an item of manifests")
		d.exists(n, m.Path)
		return m
	}
	f := d.mapping(n, manifestSchema)
	if f == nil {
		return m
	}
	m = Manifest{
		Path: d.text(f[0], "path"), Helm: d.text(f[1], "helm"), Namespace: d.text(f[2], "namespace"), Release: d.text(f[3], "release"),
		ValuesFiles: d.texts(f[5], "valuesFiles"),
	}
	d.exists(f[0], m.Path)
	d.exists(f[1], m.Helm)
	switch {
	case f[0] != nil && f[1] != nil:
		d.errorf(f[1], "an item of manifests has both path and helm; it takes one")
	case f[0] == nil && f[1] == nil:
		d.errorf(n, "an item of manifests has neither path nor helm")
	case f[0] != nil:
		for _, i := range []int{3, 4, 5} {
			if f[i] != nil {
				d.errorf(f[i], "%s is for a chart: helm: %s", manifestSchema.fields[i], m.Path)
			}
		}
	}
	if m.Namespace != "" && !validNamespace(m.Namespace) {
		d.errorf(f[2], "namespace %q: a namespace has lower case letters, digits and -", m.Namespace)
	}
	if m.Release != "" && (!validName(m.Release, true) || len(m.Release) > 53) {
		d.errorf(f[3], "release %q: a release has up to 53 lower case letters, digits, - and .", m.Release)
	}
	if f[4] != nil {
		m.Values = d.object(f[4], "values")
	}
	for i, item := range d.list(f[5], "valuesFiles") {
		if i < len(m.ValuesFiles) {
			d.exists(item, m.ValuesFiles[i])
		}
	}
	return m
}

// environment reads variables: text, or a mapping with valueFrom as in a container of a pod.
func (d *decoder) environment(n *yaml.Node) (values map[string]string, from map[string]map[string]any) {
	d.named(n, "env", func(name string, _, value *yaml.Node) {
		if deref(value).Kind != yaml.MappingNode {
			if values == nil {
				values = map[string]string{}
			}
			values[name] = d.text(value, name+" in env")
			return
		}
		f := d.mapping(value, valueFromSchema)
		if f[0] == nil {
			d.errorf(value, "%s in env is text, or a mapping with valueFrom", name)
			return
		}
		source := d.object(f[0], "valueFrom")
		if len(source) != 1 || !slices.Contains(valueSources, sortedKeys(source)[0]) {
			d.errorf(f[0], "valueFrom of %s takes one of: %s", name, strings.Join(valueSources, ", "))
			return
		}
		if from == nil {
			from = map[string]map[string]any{}
		}
		from[name] = source
	})
	return values, from
}
