package plan

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
	"github.com/trommel-dev/trommel/plan/sieve"
)

// Load reads a plan from a file. See [Parse].
func Load(path string) (*Plan, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(data, path)
}

// LoadWith reads a plan and checks it against its suite. It does the same as [Load] and [Plan.Validate] in sequence,
// but returns the mistakes of both together. The suite may be nil.
func LoadWith(path string, s *Suite) (*Plan, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parse(data, path, s)
}

// readFile reads a file up to the size limit. Its errors can be shown to the user.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, Errors{{File: path, Message: "no such file"}}
		}
		return nil, Errors{{File: path, Message: reason(err)}}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, yamlfile.MaxSize+1))
	if err != nil {
		return nil, Errors{{File: path, Message: reason(err)}}
	}
	return data, nil
}

// reason returns a file system error without the path, which the message already has.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Op + ": " + pathErr.Err.Error()
	}
	return err.Error()
}

// Parse reads a plan; file is its name in messages, and files that the plan names are relative to its directory.
// Besides the format of this package it reads the two formats of Sieve's published plans. The plan is complete with its
// defaults, and valid as far as that can be checked without a suite. The error is Errors: every mistake in the file.
func Parse(data []byte, file string) (*Plan, error) { return parse(data, file, nil) }

func parse(data []byte, file string, s *Suite) (*Plan, error) {
	p := &Plan{File: file, source: &yamlfile.File{Name: file, Format: layout}}
	src := p.source
	if !src.Parse(data, "plan") {
		return nil, mistakes(src)
	}
	if format := sieve.Detect(src.Root); format != sieve.None {
		converted, problems := sieve.Convert(src.Root, format)
		for _, p := range problems {
			src.Mistakes = append(src.Mistakes, yamlfile.Mistake{Line: p.Line, Col: p.Col, Message: p.Message})
		}
		if converted == nil {
			return nil, mistakes(src)
		}
		src.Root = converted
	}
	if src.Decode(p, "a plan") {
		p.Complete(s)
		p.check(s, src)
	}
	if err := mistakes(src); err != nil {
		return nil, err
	}
	src.Mistakes = nil
	return p, nil
}

// whole returns the place of the plan, with an empty list of mistakes.
func (p *Plan) whole() *yamlfile.Place {
	src := yamlfile.File{Name: p.File, Format: layout}
	if p.source != nil {
		src = *p.source
		src.Mistakes = nil
	}
	return src.Whole()
}

// LoadSuite reads a suite from a file. See [ParseSuite].
func LoadSuite(path string) (*Suite, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseSuite(data, path)
}

// ParseSuite reads a suite; file is its name in messages, and files that the suite names are relative to its directory.
// The suite is complete with its defaults. The error is Errors: every mistake in the file.
func ParseSuite(data []byte, file string) (*Suite, error) {
	s := &Suite{File: file, source: &yamlfile.File{Name: file, Format: layout}}
	src := s.source
	if !src.Parse(data, "suite") {
		return nil, mistakes(src)
	}
	if src.Decode(s, "a suite") {
		s.complete()
		s.check(src.Whole())
	}
	if err := mistakes(src); err != nil {
		return nil, err
	}
	return s, nil
}

// FileKind returns the [Kind] of a file. It returns an error only if the file cannot be read.
func FileKind(path string) (string, error) {
	data, err := readFile(path)
	if err != nil {
		return "", err
	}
	return Kind(data), nil
}

// Kind says what a YAML file contains, judging by its fields: TestPlan (in any format that [Parse] reads), Suite, or ""
// for anything else. The file need not be valid.
func Kind(data []byte) string {
	f := &yamlfile.File{}
	if !f.Parse(data, "") || f.Root.Kind != yaml.MappingNode {
		return ""
	}
	root := f.Root
	has := func(field string) bool {
		key, _ := yamlfile.Entry(root, field)
		return key != nil
	}
	switch _, kind := yamlfile.Entry(root, "kind"); {
	case has("kind"):
		if kind = yamlfile.Deref(kind); kind != nil && (kind.Value == "TestPlan" || kind.Value == "Suite") {
			return kind.Value
		}
	case has("actions"), sieve.Detect(root) != sieve.None:
		return "TestPlan"
	case has("controllers") && (has("workloads") || has("cluster")):
		return "Suite"
	}
	return ""
}

// Beside returns the path of a file that a plan or suite names. Relative names are relative to the directory of file,
// the plan or suite.
func Beside(file, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}
