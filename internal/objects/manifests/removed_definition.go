package manifests

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	fieldpath "k8s.io/apimachinery/pkg/util/validation/field"
)

// definition converts a v1beta1 CustomResourceDefinition to v1 by Kubernetes' own conversion, and rewrites what v1
// refuses: definitions that preserve unknown fields say so at every level of their schema, and a schema that is missing
// or invalid in v1 becomes one that accepts everything.
func definition(u *unstructured.Unstructured) (notes []string, err error) {
	old := &apiextensionsv1beta1.CustomResourceDefinition{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, old, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, unknown := range strict.Errors() {
			notes = append(notes, fmt.Sprintf("%v; it is left out", unknown)) // as API servers did
		}
	} else if err != nil {
		return nil, err
	}
	apiextensionsv1beta1.SetObjectDefaults_CustomResourceDefinition(old)
	d := &apiextensions.CustomResourceDefinition{}
	err = apiextensionsv1beta1.Convert_v1beta1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(old,
		d,
		nil)
	if err != nil {
		return nil, err
	}
	if *d.Spec.PreserveUnknownFields {
		notes = append(notes, preserveUnknownFields(&d.Spec)...)
	}
	d.Spec.PreserveUnknownFields = nil
	if apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		state, _ := apihelpers.GetAPIApprovalState(d.Annotations)
		if state == apihelpers.APIApprovalMissing || state == apihelpers.APIApprovalInvalid {
			if d.Annotations == nil {
				d.Annotations = map[string]string{}
			}
			d.Annotations[apiextensionsv1beta1.KubeAPIApprovedAnnotation] = "unapproved, applied from v1beta1, which " +
				"did not ask"
		}
	}
	renewed := &apiextensionsv1.CustomResourceDefinition{}
	err = apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(d, renewed, nil)
	if err != nil {
		return nil, err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(renewed)
	if err != nil {
		return nil, err
	}
	object["apiVersion"], object["kind"] = u.GetAPIVersion(), u.GetKind()
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok && metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	u.Object = object
	return notes, nil
}

// preserveUnknownFields rewrites the schemas of a definition whose objects keep unknown fields.
func preserveUnknownFields(spec *apiextensions.CustomResourceDefinitionSpec) (notes []string) {
	rewrite := func(v *apiextensions.CustomResourceValidation, of string) *apiextensions.CustomResourceValidation {
		if v == nil || v.OpenAPIV3Schema == nil {
			notes = append(notes, of+" is missing, which v1 does not allow; one that accepts everything is applied")
			return &apiextensions.CustomResourceValidation{OpenAPIV3Schema: anything()}
		}
		s := v.OpenAPIV3Schema.DeepCopy()
		if s.Type == "" {
			s.Type = "object" // many omitted it; the root must be an object
		}
		err := structural(s)
		if err == nil {
			keepUnknown(s, true)
			err = structural(s)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf(
				"%s is not structural, which v1 requires; one that accepts everything is applied instead: %v", of, err))
			s = anything()
		}
		return &apiextensions.CustomResourceValidation{OpenAPIV3Schema: s}
	}
	perVersion := false
	for i := range spec.Versions {
		v := &spec.Versions[i]
		if v.Schema != nil {
			perVersion = true
			v.Schema = rewrite(v.Schema, "the schema of version "+v.Name)
		}
	}
	if !perVersion {
		spec.Validation = rewrite(spec.Validation, "its schema")
		return notes
	}
	for i := range spec.Versions {
		if spec.Versions[i].Schema == nil {
			spec.Versions[i].Schema = rewrite(nil, "the schema of version "+spec.Versions[i].Name)
		}
	}
	return notes
}

// anything is a schema that accepts every object as it is.
func anything() *apiextensions.JSONSchemaProps {
	return &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
}

// structural returns an error if the schema is not structural, by Kubernetes' own rules.
func structural(s *apiextensions.JSONSchemaProps) error {
	if t := invalidType(s); t != "" {
		return fmt.Errorf("unknown type %q", t)
	}
	structural, err := structuralschema.NewStructural(s)
	if err != nil {
		return err
	}
	return structuralschema.ValidateStructural(fieldpath.NewPath("openAPIV3Schema"), structural).ToAggregate()
}

// invalidType is a type that OpenAPI does not have; v1beta1 did not check it.
func invalidType(s *apiextensions.JSONSchemaProps) string {
	if !slices.Contains([]string{"", "array", "boolean", "integer", "number", "object", "string"}, s.Type) {
		return s.Type
	}
	for _, property := range s.Properties {
		if t := invalidType(&property); t != "" {
			return t
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		return invalidType(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		return invalidType(s.AdditionalProperties.Schema)
	}
	return ""
}

// keepUnknown makes every object in the schema that lists its fields keep unknown ones.
func keepUnknown(s *apiextensions.JSONSchemaProps, root bool) {
	if s.Type == "object" && s.AdditionalProperties == nil {
		s.XPreserveUnknownFields = new(true)
	}
	for name := range s.Properties {
		if name == "metadata" && (root || s.XEmbeddedResource) {
			continue // which has its own schema
		}
		property := s.Properties[name]
		keepUnknown(&property, false)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		keepUnknown(s.Items.Schema, false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		keepUnknown(s.AdditionalProperties.Schema, false)
	}
}
