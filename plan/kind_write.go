package plan

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan/internal/jsonvalue"
)

// The types of actions that write objects, as another client.
const (
	ApplyObject  ActionType = "apply"
	PatchObject  ActionType = "patch"
	DeleteObject ActionType = "delete"
)

// Writing has the fields of actions that write objects.
type Writing struct {
	ResourceKey  ResourceKey    `yaml:"resourceKey"`  // patch, delete
	Manifest     map[string]any `yaml:"manifest"`     // apply: inline object
	ManifestFile string         `yaml:"manifestFile"` // apply: its file
	PatchType    string         `yaml:"patchType" words:"merge json strategic" default:"merge"`
	Subresource  string         `yaml:"subresource"` // patch: e.g. status
	Patch        any            `yaml:"patch"`       // mapping or json list
}

var applyObject = ActionKind{
	Type:    ApplyObject,
	Summary: "Apply an object as another client.",
	Doc:     "another client's server-side apply, of one or the other",
	Fields:  []string{"cluster", "manifest", "manifestFile"},
	Check: func(c *ActionCheck) {
		switch a, planFile := c.Action, c.checker.plan.File; {
		case a.ManifestFile != "" && a.Manifest != nil:
			c.Errorf("manifestFile", "apply has both manifest and manifestFile; it takes one")
		case a.ManifestFile != "":
			if planFile == "" {
				return
			}
			if _, err := os.Stat(Beside(planFile, a.ManifestFile)); err != nil {
				c.Errorf("manifestFile", "manifestFile: %s: no such file beside the plan", a.ManifestFile)
			}
		case a.Manifest != nil:
			if message := objectMistake(a.Manifest); message != "" {
				c.Errorf("manifest", "manifest %s", message)
			}
		default:
			c.Missing("manifest", "apply has neither manifest nor manifestFile")
		}
	},
	Explain: func(a *Action) string {
		if a.ManifestFile != "" {
			return "as another client, apply what is in " + a.ManifestFile
		}
		meta, _ := a.Manifest["metadata"].(map[string]any)
		return fmt.Sprintf("as another client, apply %v %v", a.Manifest["kind"], meta["name"])
	},
	Effects: func(a *Action) []Effect { return []Effect{&Write{Applies: a.Manifest}} },
	Object: func(a *Action) string {
		if a.Manifest == nil {
			return a.ManifestFile
		}
		kind, _ := a.Manifest["kind"].(string)
		meta, _ := a.Manifest["metadata"].(map[string]any)
		namespace, _ := meta["namespace"].(string)
		name, _ := meta["name"].(string)
		return ResourceKey{Type: strings.ToLower(kind), Namespace: namespace, Name: name}.String()
	},
}

var patchObject = ActionKind{
	Type:    PatchObject,
	Summary: "Patch an object as another client.",
	Doc:     "another client's patch",
	Fields:  []string{"cluster", "resourceKey", "patchType", "patch", "subresource"},
	Check: func(c *ActionCheck) {
		checkWrite(c)
		if message := patchMistake(c.Action.PatchType, c.Action.Patch); message != "" {
			c.Errorf("patch", "%s", message)
		}
	},
	Explain: func(a *Action) string {
		what := ""
		if a.Subresource != "" {
			what = "the " + a.Subresource + " of "
		}
		return fmt.Sprintf("as another client, patch %s%s with %s", what, a.ResourceKey, jsonvalue.Compact(a.Patch))
	},
	Effects: func(a *Action) []Effect { return []Effect{&Write{Patches: a.ResourceKey}} },
	Object:  (*Action).Written,
}

var deleteObject = ActionKind{
	Type:    DeleteObject,
	Summary: "Delete an object as another client.",
	Doc:     "another client's deletion",
	Fields:  []string{"cluster", "resourceKey"},
	Check:   checkWrite,
	Explain: func(a *Action) string { return "as another client, delete " + a.ResourceKey.String() },
	Effects: func(a *Action) []Effect { return []Effect{&Write{Deletes: a.ResourceKey}} },
	Object:  (*Action).Written,
}

// Written names the object that the action patches or deletes.
func (a *Action) Written() string {
	if a.Subresource != "" {
		return fmt.Sprintf("%s (%s)", a.ResourceKey, a.Subresource)
	}
	return a.ResourceKey.String()
}

// checkWrite checks the object that an action writes.
func checkWrite(c *ActionCheck) {
	switch a := c.Action; {
	case a.ResourceKey.IsZero():
		c.Missing("resourceKey", "%s has no resourceKey", a.Type)
	case !a.ResourceKey.HasWildcard():
	case slices.ContainsFunc(a.Trigger.Definitions, func(d Definition) bool {
		return d.Condition.ResourceKey == a.ResourceKey
	}): // the object that fires it
	default:
		c.Errorf("resourceKey", "%s takes one object; %q may match several (if a trigger of the action has the same "+
			"resourceKey, it is the object that fires it)", a.Type, a.ResourceKey)
	}
}

// objectMistake says what an object lacks that is to be applied.
func objectMistake(object map[string]any) string {
	for _, f := range []string{"apiVersion", "kind"} {
		if s, _ := object[f].(string); s == "" {
			return "has no " + f
		}
	}
	meta, _ := object["metadata"].(map[string]any)
	if s, _ := meta["name"].(string); s == "" {
		return "has no metadata.name"
	}
	return ""
}

// patchMistake says what is wrong with a patch.
func patchMistake(typ string, patch any) string {
	if typ != "" && !slices.Contains(layout.ShapeOf(reflect.TypeFor[Action]()).Field("patchType").Words, typ) {
		return fmt.Sprintf("unknown patchType %q%s", typ,
			wording.Suggest(typ, layout.ShapeOf(reflect.TypeFor[Action]()).Field("patchType").Words))
	}
	_, isMap := patch.(map[string]any)
	_, isList := patch.([]any)
	switch {
	case patch == nil:
		return "there is no patch"
	case typ == "json" && !isList:
		return "a json patch must be a list of operations"
	case typ != "json" && !isMap:
		return "a merge or strategic patch must be a mapping; for a list of operations use patchType: json"
	}
	return ""
}
