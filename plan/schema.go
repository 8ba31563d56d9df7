package plan

import _ "embed"

// PlanJSONSchema is the JSON Schema (2020-12) of plan files.
//
//go:embed plan.schema.json
var PlanJSONSchema []byte

// SuiteJSONSchema is the JSON Schema (2020-12) of suite files.
//
//go:embed suite.schema.json
var SuiteJSONSchema []byte
