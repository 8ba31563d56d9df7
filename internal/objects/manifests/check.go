package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	beta "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/trommel-dev/trommel/internal/objects"
)

// Checker checks objects as an API server would, but without a server: objects of Kubernetes' own types for unknown
// fields, required ones and some values, custom objects against the schemas of their definitions. It does not check
// what needs a running server (webhooks, CEL rules, constraints between fields). It is safe for concurrent use.
type Checker struct {
	defined []objects.Type
	schemas map[schema.GroupVersionKind]*structuralschema.Structural // nil if everything is valid
	newer   bool                                                     // the cluster may know fields that we do not
}

// goVersion is the Kubernetes minor version of the types that are compiled in.
const goVersion = "v1.36"

// newerThanTypes reports whether a cluster of that version may know fields that the types compiled in do not.
func newerThanTypes(kubernetes string) bool {
	return semver.Compare("v"+strings.TrimPrefix(kubernetes, "v"), goVersion+".999") > 0
}

// elsewhere are groups that are handled although the manifests do not define them, or that every API server serves and
// client-go does not know.
var elsewhere = []string{"apiregistration.k8s.io", "cert-manager.io", "acme.cert-manager.io"}

// NewChecker returns a checker that knows the types of the given Kubernetes version and those that the definitions
// among the objects define. If definitions have mistakes, it returns an error that lists them and a checker that knows
// the other definitions.
func NewChecker(list []*unstructured.Unstructured, kubernetes string) (*Checker, error) {
	c := &Checker{
		defined: slices.DeleteFunc(objects.Defined(list), func(t objects.Type) bool { return t.Unserved }),
		schemas: map[schema.GroupVersionKind]*structuralschema.Structural{},
		newer:   newerThanTypes(kubernetes),
	}
	var errs []error
	for _, u := range list {
		if u.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io",
			Kind: "CustomResourceDefinition"}) {
			continue
		}
		if err := c.define(u); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", describe(u), err))
		}
	}
	return c, errors.Join(errs...)
}

// define adds a definition's schemas.
func (c *Checker) define(u *unstructured.Unstructured) error {
	d := &apiextensions.CustomResourceDefinition{}
	converter := runtime.DefaultUnstructuredConverter
	var err error
	switch u.GroupVersionKind().Version {
	case "v1":
		in := &apiextensionsv1.CustomResourceDefinition{}
		if err = converter.FromUnstructured(u.Object, in); err == nil {
			convert := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition
			err = convert(in, d, nil)
		}
	case "v1beta1":
		in := &beta.CustomResourceDefinition{}
		if err = converter.FromUnstructured(u.Object, in); err == nil {
			convert := beta.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition
			err = convert(in, d, nil)
		}
	default:
		return fmt.Errorf("unknown version of CustomResourceDefinition: %s", u.GroupVersionKind().Version)
	}
	if err != nil {
		return err
	}
	if want := d.Spec.Names.Plural + "." + d.Spec.Group; d.Name != want {
		return fmt.Errorf("its name must be %q (spec.names.plural.spec.group)", want)
	}
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		kind := schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
		c.schemas[kind] = nil
		validation, err := apiextensions.GetSchemaForVersion(d, v.Name)
		if err != nil {
			return err
		}
		if validation == nil || validation.OpenAPIV3Schema == nil {
			continue
		}
		structural, err := structuralschema.NewStructural(validation.OpenAPIV3Schema)
		if err != nil {
			return fmt.Errorf("version %s: %w", v.Name, err)
		}
		c.schemas[kind] = structural
	}
	return nil
}

// describe names an object for messages.
func describe(u *unstructured.Unstructured) string {
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName() + "*"
	}
	if ns := u.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return u.GetKind() + " " + name
}

// Check returns everything that is wrong with the object. For a type that is neither Kubernetes' own nor defined, the
// error is a [objects.NotServedError].
func (c *Checker) Check(u *unstructured.Unstructured) error {
	var errs []error
	for _, err := range c.check(u) {
		errs = append(errs, fmt.Errorf("%s: %w", describe(u), err))
	}
	return errors.Join(errs...)
}

func (c *Checker) check(u *unstructured.Unstructured) []error {
	kind := u.GroupVersionKind()
	if slices.Contains(elsewhere, kind.Group) {
		return nil
	}
	if structural, ok := c.schemas[kind]; ok {
		return checkCustom(u, structural)
	}
	if scheme.Scheme.Recognizes(kind) {
		return c.checkOwn(u)
	}
	_, err := objects.FindKind(c.types(), kind)
	return []error{err}
}

// types returns all types that the checker knows.
func (c *Checker) types() []objects.Type {
	all := slices.Clone(c.defined)
	for kind := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal && !strings.HasSuffix(kind.Kind, "List") &&
			!strings.HasSuffix(kind.Kind, "Options") {
			all = append(all, objects.Type{Kind: kind, Resource: kind.GroupVersion().WithResource(""),
				Singular: strings.ToLower(kind.Kind)})
		}
	}
	// Sorted by name, because messages list them.
	slices.SortStableFunc(all[len(c.defined):], func(a, b objects.Type) int {
		return strings.Compare(a.Kind.String(), b.Kind.String())
	})
	return all
}

// checkOwn finds unknown fields and invalid values in an object of one of Kubernetes' own types.
func (c *Checker) checkOwn(u *unstructured.Unstructured) []error {
	typed, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return []error{err}
	}
	found := slices.Concat(checkValues(u), checkRequired(u), CheckSubjects(u))
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.DeepCopy().Object, typed, true)
	strict, ok := runtime.AsStrictDecodingError(err)
	switch {
	case err == nil || ok && c.newer:
		return found
	case ok:
		return append(strict.Errors(), found...)
	case len(found) > 0:
		return found // they say more
	}
	return []error{err}
}

// CheckSubjects finds service accounts without a namespace in a ClusterRoleBinding, as manifests have that are meant to
// be applied with one.
func CheckSubjects(u *unstructured.Unstructured) (errs []error) {
	for i, subject := range subjects(u) {
		if namespace, _ := subject["namespace"].(string); subject["kind"] == "ServiceAccount" && namespace == "" {
			errs = append(errs, fmt.Errorf("subjects[%d].namespace is required for a ServiceAccount; in manifests "+
				"without namespaces, `namespace:` of the suite's item sets it", i))
		}
	}
	return errs
}

// checkCustom fills in defaults, as an API server does, and then checks the object against the schema.
func checkCustom(u *unstructured.Unstructured, structural *structuralschema.Structural) []error {
	if structural == nil {
		return nil
	}
	u = u.DeepCopy()
	fillDefaults(u.Object, structural)
	var errs []error
	unknown := pruning.PruneWithOptions(u.DeepCopy().Object, structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		errs = append(errs, fmt.Errorf("unknown field %q", path))
	}
	content := map[string]any{}
	for k, v := range u.Object {
		if k != "metadata" && k != "apiVersion" && k != "kind" && k != "status" {
			content[k] = v
		}
	}
	// Kubernetes' own checks cover the metadata, and controllers write the status.
	root := *structural
	if v := root.ValueValidation; v != nil {
		without := *v
		without.Required = slices.DeleteFunc(slices.Clone(v.Required), func(name string) bool {
			return name == "metadata" || name == "apiVersion" || name == "kind"
		})
		root.ValueValidation = &without
	}
	root.Properties = map[string]structuralschema.Structural{}
	for name, property := range structural.Properties {
		if name != "metadata" && name != "status" && name != "apiVersion" && name != "kind" {
			root.Properties[name] = property
		}
	}
	result := validate.NewSchemaValidator(root.ToKubeOpenAPI(), nil, "", strfmt.Default).Validate(content)
	for _, err := range result.Errors {
		errs = append(errs, &valueError{strings.ReplaceAll(err.Error(), " in body", "")})
	}
	// The validator walks maps, in no fixed order.
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// fillDefaults sets the defaults of absent fields.
func fillDefaults(value any, s *structuralschema.Structural) {
	switch v := value.(type) {
	case map[string]any:
		for name, property := range s.Properties {
			if _, ok := v[name]; !ok && property.Default.Object != nil {
				v[name] = runtime.DeepCopyJSONValue(property.Default.Object)
			}
			if child, ok := v[name]; ok {
				fillDefaults(child, &property)
			}
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
			for name, child := range v {
				if _, ok := s.Properties[name]; !ok {
					fillDefaults(child, s.AdditionalProperties.Structural)
				}
			}
		}
	case []any:
		if s.Items != nil {
			for _, item := range v {
				fillDefaults(item, s.Items)
			}
		}
	}
}
