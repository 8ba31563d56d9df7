package plan

import (
	"fmt"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// FindSuite returns the suite of a plan file: the one that its suite field names, otherwise the nearest trommel.yaml in
// its directory or above. The plan need not be valid.
//
// A relative path in the suite field leads nowhere if the plan was moved. FindSuite then returns the nearest file of
// the same name that has the plan's workload: in the plan's directory or above, or else in the working directory or
// above. A suite field with an absolute path is taken as it is.
func FindSuite(planFile string) (string, error) {
	data, err := readFile(planFile)
	if err != nil {
		data = nil
	}
	f := &yamlfile.File{}
	f.Parse(data, "plan")
	above, err := filepath.Abs(filepath.Dir(planFile))
	if err != nil {
		return "", err
	}
	named := textField(f.Root, "suite")
	if named == nil {
		if found := nearestAbove(above, SuiteFile, ""); found != "" {
			return found, nil
		}
		return "", Errors{{File: planFile, Message: fmt.Sprintf("no suite: there is no %s in %s or above", SuiteFile,
			above)}}
	}
	path := Beside(planFile, named.Value)
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return filepath.Join(path, SuiteFile), nil
	case err == nil:
		return path, nil
	}
	mistake := &Error{File: planFile, Line: named.Line, Col: named.Column,
		Message: fmt.Sprintf("suite %q: no such file", named.Value)}
	if filepath.IsAbs(named.Value) {
		return "", Errors{mistake}
	}
	base, workload := filepath.Base(named.Value), ""
	if ext := filepath.Ext(base); ext != ".yaml" && ext != ".yml" {
		base = SuiteFile // it names a directory
	}
	missing := base
	if n := textField(f.Root, "workload"); n != nil {
		workload = n.Value
		missing += fmt.Sprintf(" with workload %q", workload)
	}
	if found := nearestAbove(above, base, workload); found != "" {
		return found, nil
	}
	mistake.Message += fmt.Sprintf(", and no %s in %s or above", missing, above)
	if here, err := os.Getwd(); err == nil && here != above {
		if found := nearestAbove(here, base, workload); found != "" {
			return found, nil
		}
		mistake.Message += fmt.Sprintf(", nor in the working directory %s or above", here)
	}
	mistake.Message += "; name the suite with -c"
	return "", Errors{mistake}
}

// nearestAbove returns the nearest file of the name, in the directory or above, that has the workload; an empty one is
// in each file. Empty: there is none.
func nearestAbove(dir, name, workload string) string {
	for at := dir; ; at = filepath.Dir(at) {
		path := filepath.Join(at, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && hasWorkload(path, workload) {
			return path
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

// hasWorkload reports whether a suite has a workload, or any if it is empty. The suite need not be valid.
func hasWorkload(suiteFile, workload string) bool {
	if workload == "" {
		return true
	}
	data, err := readFile(suiteFile)
	if err != nil {
		return false
	}
	f := &yamlfile.File{}
	f.Parse(data, "suite")
	_, all := yamlfile.Entry(f.Root, "workloads")
	key, _ := yamlfile.Entry(all, workload)
	return key != nil
}

// textField returns the value of a field if it is text, and not empty; otherwise nil.
func textField(root *yaml.Node, name string) *yaml.Node {
	_, n := yamlfile.Entry(root, name)
	if n = yamlfile.Deref(n); n != nil && n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value != "" {
		return n
	}
	return nil
}
