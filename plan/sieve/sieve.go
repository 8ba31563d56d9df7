// Package sieve converts the two formats of the Sieve project's published test plans to Trommel's.
//
// It works on YAML nodes and knows nothing of the plan package, which calls it: what comes out is a tree of nodes in
// Trommel's format whose nodes stand, line and column, where the words that they were made of stand in the file.
package sieve

import "gopkg.in/yaml.v3"

// Format is a format of Sieve's.
type Format int

// The formats.
const (
	None    Format = iota // not Sieve's
	Modes                 // one fixed mode a plan: stale-state, unobserved-state, intermediate-state
	Actions               // a list of actions with triggers
)

// Problem is something that cannot be converted.
type Problem struct {
	Line, Col int
	Message   string
}

// Detect tells the format of a document's root node.
func Detect(root *yaml.Node) Format { return None }

// Convert converts a document's root node.
func Convert(root *yaml.Node, format Format) (*yaml.Node, []Problem) { return root, nil }
